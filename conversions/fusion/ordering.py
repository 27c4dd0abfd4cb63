"""In which order fusions are tried, derived from what they consist of.

A fusion that makes operations which another one looks for comes before it, and of two that look for the same the larger
one comes first, so that nobody has to say which pattern is more specific.
"""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm_ir.conversions.fusion.library import Sketch


def ordered(sketches: Sequence[Sketch]) -> list[Sketch]:
    """The variants of all fusions in question in the order in which they are to be tried."""
    largest = sorted(sketches, key=lambda sketch: (-sketch.size, sketch.fusion.name, sketch.example))
    sorter = TopologicalSorter({sketch: [other for other in largest if _feeds(other, sketch)] for sketch in largest})
    try:
        sorter.prepare()
    except CycleError:
        return largest
    result: list[Sketch] = []
    rank = {sketch: number for number, sketch in enumerate(largest)}
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=rank.__getitem__)
        result.extend(ready)
        sorter.done(*ready)
    return result


def _feeds(one: Sketch, other: Sketch) -> bool:
    """Whether a fusion makes what another one looks for, and not the other way round."""
    if one.fusion is other.fusion:
        return False
    there = (one.made - one.looked_for) & other.looked_for
    return bool(there) and not (other.made - other.looked_for) & one.looked_for
