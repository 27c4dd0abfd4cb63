"""`fuse`: groups of operations become the operations that fusions put in their place.

Which fusions there are is said in `fusion/scope.py`; how one is declared, in `fusion/fusion.py`. What was fused where
stays in the module's `vllm_ir.fused` attribute, and with `explain` what came close in `vllm_ir.unfused`, and why the
other fusions found nothing in `vllm_ir.unlike`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass
from itertools import islice

from xdsl.context import Context
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp
from xdsl.ir import Operation
from xdsl.utils.exceptions import PassFailedException

from vllm_ir.conversions.errors import describe, location_text, name_text
from vllm_ir.conversions.fusion.fusion import Numerics
from vllm_ir.conversions.fusion.instances import Instances
from vllm_ir.conversions.fusion.library import Library, feeding_keys, library_of
from vllm_ir.conversions.fusion.matcher import Matcher, Miss
from vllm_ir.conversions.fusion.pattern import Key, Variant, key_of
from vllm_ir.conversions.fusion.scope import fusions_named
from vllm_ir.conversions.fusion.sites import Order, replace, site_of
from vllm_ir.conversions.notes import text_array
from vllm_ir.conversions.rewrites import LimitedPass, Rewrites
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.frontends.ops import ops

FUSED = "vllm_ir.fused"
UNFUSED = "vllm_ir.unfused"
UNLIKE = "vllm_ir.unlike"
_MOST_MATCHES = 16
"""How many matches of one root are tried that differ only in attributes or types."""


@dataclass(frozen=True)
class FusePass(LimitedPass):
    """Replace what the functions `before` of fusions compute by what their functions `after` do.

    `only`: names of fusions; all that are supported without it. `numerics`: `exact`, `reordered` or `changed`, how
    results may differ. `require`: `name:count` or `name`, how often a fusion has to be applied, or that it has to be;
    the name of an op counts the operations of it that fusions leave in the program. `explain` keeps near misses.
    `decompose`: the module's operators are broken down to those that Inductor takes.
    """

    name = "fuse"

    only: tuple[str, ...] = ()
    numerics: str = "changed"
    require: tuple[str, ...] = ()
    explain: bool = False
    decompose: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.numerics.upper() not in Numerics.__members__:
            known = ", ".join(name.lower() for name in Numerics.__members__)
            raise ValueError(f"option numerics is {self.numerics!r}, it takes one of {known}")
        for entry in self.require:
            _, colon, count = entry.partition(":")
            if colon and not count.isdecimal():
                raise ValueError(f"option require has {entry!r}, it takes fusion:count or fusion")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Fuse in every functional function of the module."""
        fusions = fusions_named(self.only)
        fusing = _Fusing(library_of(fusions, self.decompose), Numerics[self.numerics.upper()], self)
        for function in op.body.block.ops:
            if isinstance(function, FuncOp) and function.functional is not None:
                fusing.run(function)
        fusing.note(op)
        _check_required(self.require, fusing.counts())


class _Fusing:
    def __init__(self, library: Library, numerics: Numerics, options: FusePass) -> None:
        self.library = library
        self.instances = Instances(numerics)
        self.explain = options.explain
        self.rewrites: Rewrites = options.start()
        self.applied: dict[str, list[str]] = {}
        self.made: list[Operation] = []
        """What fusions have put into the program; some may be fused again."""
        self.misses: dict[str, dict[Operation, tuple[int, str]]] = {}
        self.feeding: dict[Operation, frozenset[Key]] = {}
        """Of roots that were looked at, and whose operands have not changed since."""
        self.present: set[Key] = set()
        """What the functions have, if it is asked why fusions found nothing."""

    def run(self, function: FuncOp) -> None:
        present: dict[Key, list[Operation]] = {}
        for op in function.block.ops:
            present.setdefault(key_of(op), []).append(op)
        if not self.library.roots.isdisjoint(present):
            self._run(present, Order(function))
        if self.explain:
            self.present |= present.keys()

    def _run(self, present: dict[Key, list[Operation]], order: Order) -> None:
        for sketch in self.library.sketches:
            if sketch.root not in present or not (self.explain or sketch.looked_for <= present.keys()):
                continue
            # What a fusion puts into the program may be the root of one that comes later; were it one of its own, there
            # might be no end.
            for op in list(present[sketch.root]):
                if op.parent is not None and (self.explain or sketch.feeding <= self._feeding(op)):
                    for new in self._try(self.library.matcher(sketch), op, order):
                        present.setdefault(key_of(new), []).append(new)

    def _feeding(self, op: Operation) -> frozenset[Key]:
        if (known := self.feeding.get(op)) is None:
            known = self.feeding[op] = feeding_keys(op)
        return known

    def _try(self, matcher: Matcher, root: Operation, order: Order) -> list[Operation]:
        variant, misses = matcher.variant, list[Miss]()
        for match in islice(matcher.matches(root), _MOST_MATCHES):
            instance = self.instances.check(variant, match)
            if isinstance(instance, Miss):
                misses.append(instance)
                continue
            site = site_of(match, variant, order)
            if isinstance(site, Miss):
                misses.append(site)
            elif not self.rewrites.take(root, f"is fused by {variant.fusion.name}"):
                return []
            else:
                where = location_text(root) or name_text(root)
                self.applied.setdefault(variant.fusion.name, []).append(where)
                new = replace(site, variant, instance.after, self.instances.examples.original, order)
                self.made += new
                for user in [use.operation for op in new for result in op.results for use in result.uses]:
                    self.feeding.pop(user, None)
                return new
        if matcher.miss is not None:
            misses.append(matcher.miss)
        for miss in misses:
            self._missed(variant, root, miss)
        return []

    def _missed(self, variant: Variant, root: Operation, miss: Miss) -> None:
        """Keep the attempt that got furthest. One that found nothing but its root is no near miss."""
        if not self.explain or (miss.matched < 2 and len(variant.nodes) > 2):
            return
        known = self.misses.setdefault(variant.fusion.name, {})
        if root not in known or known[root][0] < miss.matched:
            at = location_text(miss.operation) or name_text(miss.operation)
            known[root] = (miss.matched, f"{at}: {describe(miss.operation)}: {miss.reason}")

    def counts(self) -> Counter[str]:
        """How often each fusion was applied, and how many operations of each op it has left in the program."""
        applied = Counter({name: len(places) for name, places in self.applied.items()})
        made = Counter(op.name.removeprefix("vllm_ir.") for op in self.made if op.parent is not None)
        return made | applied

    def note(self, module: ModuleOp) -> None:
        if self.applied:
            module.attributes[FUSED] = _lists(self.applied)
        left = {
            name: [text for op, (_, text) in misses.items() if op.parent is not None]
            for name, misses in self.misses.items()
        }
        if any(left.values()):
            module.attributes[UNFUSED] = _lists({name: texts for name, texts in left.items() if texts})
        if self.explain:
            missing = self._missing(without={*self.applied, *(name for name, texts in left.items() if texts)})
            module.attributes[UNLIKE] = _lists(missing)

    def _missing(self, without: Set[str]) -> dict[str, list[str]]:
        """For each other fusion the operators of the variant that lacks fewest of them; there may be none."""
        found: dict[str, list[str]] = {}
        for sketch in self.library.sketches:
            missing = sorted(sketch.looked_for - self.present)
            name = sketch.fusion.name
            if name not in without and (name not in found or len(missing) < len(found[name])):
                found[name] = missing
        return found


def _lists(entries: dict[str, list[str]]) -> DictionaryAttr:
    return DictionaryAttr({name: text_array(texts) for name, texts in entries.items()})


def _check_required(required: tuple[str, ...], counts: Mapping[str, int]) -> None:
    for entry in required:
        name, colon, count = entry.partition(":")
        if name not in ops:
            fusions_named([name])
        found = counts.get(name, 0)
        if (found != int(count)) if colon else not found:
            wanted = f"{count} times" if colon else "at least once"
            raise PassFailedException(
                f"fuse: {name} was applied {found} times, {wanted} required; explain shows what came close"
            )


__all__ = ["FUSED", "UNFUSED", "UNLIKE", "FusePass"]
