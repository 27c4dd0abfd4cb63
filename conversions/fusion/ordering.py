"""In which order fusions are tried, derived from what they consist of.

A fusion that makes operations which another one looks for comes before it. So does one that looks for all that another
one does and for more, and of others the larger one, so that nobody has to say which pattern is more specific.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from vllm_ir.conversions.fusion.library import Sketch
    from vllm_ir.conversions.fusion.pattern import Key

    _Group: TypeAlias = list[Sketch]


def ordered(sketches: Sequence[Sketch]) -> list[Sketch]:
    """The variants of all fusions in question in the order in which they are to be tried."""
    largest = sorted(sketches, key=lambda sketch: (-sketch.size, sketch.fusion.name, sketch.example))
    groups: dict[object, _Group] = defaultdict(list)
    for sketch in largest:  # most variants of a fusion differ in what does not matter here
        groups[sketch.fusion, sketch.root, sketch.looked_for, sketch.made].append(sketch)
    feeding, containing = _before([group[0] for group in groups.values()])
    both = [feeds | contains for feeds, contains in zip(feeding, containing, strict=True)]
    for before in (both, feeding):
        found = _sorted(list(groups.values()), before)
        if found is not None:
            return list(chain.from_iterable(found))
    return largest


def _before(sketches: Sequence[Sketch]) -> tuple[list[set[int]], list[set[int]]]:
    """For each sketch the numbers of those that make what it looks for, and of those that look for it and more."""
    makers: dict[Key, set[int]] = defaultdict(set)
    holders: dict[Key, set[int]] = defaultdict(set)
    for number, sketch in enumerate(sketches):
        for key in sketch.looked_for:
            holders[key].add(number)
        for key in sketch.new:
            makers[key].add(number)
    feeding: list[set[int]] = []
    containing: list[set[int]] = []
    for sketch in sketches:
        near = set(chain.from_iterable(makers[key] for key in sketch.looked_for))
        feeding.append({number for number in near if _feeds(sketches[number], sketch)})
        all_of_it = set[int].intersection(*(holders[key] for key in sketch.looked_for))
        containing.append({number for number in all_of_it if sketch.looked_for < sketches[number].looked_for})
    return feeding, containing


def _sorted(groups: Sequence[_Group], before: Sequence[set[int]]) -> Iterable[_Group] | None:
    """The groups, each behind those that come before it; None if there is no such order."""
    sorter = TopologicalSorter(dict(enumerate(before)))
    try:
        sorter.prepare()
    except CycleError:
        return None
    result: list[_Group] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        result += [groups[number] for number in ready]
        sorter.done(*ready)
    return result


def _feeds(one: Sketch, other: Sketch) -> bool:
    """Whether a fusion that makes what another one looks for does not get it from that."""
    return one.fusion is not other.fusion and other.new.isdisjoint(one.looked_for)
