"""What each value of a block is a part of, and which versions of tensors are made as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TypeAlias

from xdsl.dialects.builtin import DYNAMIC_INDEX
from xdsl.ir import Operation, SSAValue

from vllm_ir.conversions.convert_to_stablehlo.dtypes import shape
from vllm_ir.conversions.narrow_updates.boxes import are_disjoint, is_within
from vllm_ir.conversions.narrow_updates.constants import Equals, integer_of
from vllm_ir.conversions.narrow_updates.indexed import plan_for, reached
from vllm_ir.conversions.narrow_updates.order import inputs_of
from vllm_ir.conversions.narrow_updates.versions import Part, Root, Update, Version
from vllm_ir.conversions.narrow_updates.windows import Window
from vllm_ir.conversions.rewrites import Rewrites
from vllm_ir.dialects.stablehlo import (
    DynamicSliceOp,
    DynamicUpdateSliceOp,
    GatherOp,
    ReshapeOp,
    ScatterOp,
    SliceOp,
    TransposeOp,
)

_VIEWS = (SliceOp, DynamicSliceOp, ReshapeOp, TransposeOp)
_UPDATES = (DynamicUpdateSliceOp, ScatterOp)
_FAR = 64
"""How many updates may lie between taking a part and putting it back; it bounds the work, not what is right."""

Starts: TypeAlias = list[int | SSAValue]


class Analysis:
    """The parts that the values of a block are, as far as their tensors are updated."""

    def __init__(self, ops: Sequence[Operation], rewrites: Rewrites) -> None:
        """Of operations of a block that are needed; those behind the last of the `rewrites` stay as they are."""
        self._rewrites = rewrites
        self.parts: dict[SSAValue, Part] = {}
        self.updates: dict[Operation, Version] = {}
        """Operations that make a new version."""
        self.returns: set[Operation] = set()
        """Operations that put a part back, which makes no version of its own."""
        self._equals = Equals(self._is_read)
        self._roots = _updated(ops)
        for position, op in enumerate(ops):
            if isinstance(op, _VIEWS):
                self._view(op)
            elif isinstance(op, _UPDATES) and len(op.results) == 1:
                self._update(op, position)
        self._make(ops)

    # --- parts -----------------------------------------------------------------------------------------------------

    def part(self, value: SSAValue) -> Part | None:
        """What a value is a part of; the whole of itself, if it is a tensor that is updated."""
        found = self.parts.get(value)
        if found is None and value in self._roots:
            sizes = shape(value)
            if 0 in sizes or DYNAMIC_INDEX in sizes:
                return None
            found = self.parts[value] = Part(Version(Root(value, sizes), is_made=True), Window.of(sizes))
        return found

    def is_part(self, op: Operation) -> bool:
        """Whether the result of an operation is a part of another value."""
        return (
            len(op.results) == 1
            and (part := self.parts.get(op.results[0])) is not None
            and (part.version.root.value is not op.results[0])
        )

    def _set(self, value: SSAValue, version: Version, window: Window) -> None:
        self.parts[value] = Part(version, window)

    def _view(self, op: Operation) -> None:
        result = op.results[0]
        part = self.part(op.operands[0])
        if part is None:
            return
        window = self._window(op, part.window)
        possible = window is not None and _is_box(window, part.version.root)
        if window is None or not possible or not self._rewrites.take(op, "is read from the newest tensor that serves"):
            self._roots.add(result)
        else:
            self._set(result, part.version, window)

    def _window(self, op: Operation, window: Window) -> Window | None:
        sizes = shape(op.results[0])
        if 0 in sizes or DYNAMIC_INDEX in sizes:
            return None
        if isinstance(op, ReshapeOp):
            return window.reshaped(sizes)
        if isinstance(op, TransposeOp):
            return window.permuted(op.permutation.get_values())
        if isinstance(op, SliceOp):
            unit = all(step == 1 for step in op.strides.get_values())
            return window.narrowed(list(op.start_indices.get_values()), sizes) if unit else None
        return window.narrowed(self._starts(op.operands[1:]), sizes)

    def _starts(self, values: Iterable[SSAValue]) -> Starts:
        return [self._equals.first(value) if (known := integer_of(value)) is None else known for value in values]

    def _is_read(self, value: SSAValue) -> bool:
        """Whether a value may come to be read from another version, at another place among the operations."""
        return value in self.parts or value in self._roots or isinstance(value.owner, GatherOp)

    # --- updates ---------------------------------------------------------------------------------------------------

    def _update(self, op: Operation, position: int) -> None:
        result, part = op.results[0], self.part(op.operands[0])
        if part is None:
            return
        if isinstance(op, ScatterOp):
            target, box = reached(op, part.window), part.version.root.box(part.window)
            possible = part.window.is_whole or plan_for(op, part.window, box, part.version.root.shape) is not None
        else:
            source = op.operands[1]
            target = part.window.narrowed(self._starts(op.operands[2:]), shape(source))
            possible = part.window.is_whole or _is_box(target, part.version.root)
            version = self._put_back(part, target, self.part(source), position)
            if version is not None and self._rewrites.take(op, "is dropped: its part is updated in its place"):
                self._set(result, version, part.window)
                self.returns.add(op)
                return
        if not possible or not (part.window.is_whole or self._rewrites.take(op, "updates the whole tensor")):
            self._roots.add(result)
            return
        version = Version(part.version.root, part.version, Update(op, part.window, target), position)
        self.updates[op] = version
        self._set(result, version, part.window)

    def _put_back(self, whole: Part, target: Window, source: Part | None, position: int) -> Version | None:
        """The version that the result is a part of, if what replaces `target` is that window of another version."""
        if source is None or source.version.root is not whole.version.root or source.window.key != target.key:
            return None
        ancestor = _common(whole.version, source.version)
        new = None if ancestor is None else source.version.back_to(ancestor, _FAR)
        if ancestor is None or new is None:
            return None
        if not all(is_within(update.target, target) for update in new):
            return None
        if ancestor is whole.version:
            return source.version
        between = whole.version.back_to(ancestor, _FAR)
        if between is None or not all(are_disjoint(update.target, target) for update in between):
            return None
        version = whole.version
        for update in new:
            version = Version(version.root, version, update, position)
        return version

    # --- versions --------------------------------------------------------------------------------------------------

    def _make(self, ops: Sequence[Operation]) -> None:
        """Mark the versions that are needed as a whole: the program has them as values, or uses them."""
        for op in ops:
            used: Sequence[SSAValue] = inputs_of(op)
            if op in self.updates or op in self.returns:
                if (part := self.parts[op.results[0]]).window.is_whole:
                    part.version.make()
                used = () if op in self.returns else op.operands[1:]
            elif self.is_part(op):
                used = op.operands[1:]
            for value in used:
                if (part := self.parts.get(value)) is not None and part.window.is_whole:
                    part.version.make()


def _updated(ops: Sequence[Operation]) -> set[SSAValue]:
    """The values behind views and updates that some update changes."""
    sources: dict[SSAValue, SSAValue] = {}
    found: set[SSAValue] = set()
    for op in ops:
        if isinstance(op, _VIEWS + _UPDATES) and len(op.results) == 1:
            source = sources[op.results[0]] = sources.get(op.operands[0], op.operands[0])
            if isinstance(op, _UPDATES):
                found.add(source)
    return found


def _common(one: Version, other: Version) -> Version | None:
    """The newest version that both are made from, among the last ones."""
    if one is other or other.parent is one:
        return one
    own = set(islice(one.history(), _FAR))
    return next((version for version in islice(other.history(), _FAR) if version in own), None)


def _is_box(window: Window, root: Root) -> bool:
    return window.is_whole or root.box(window) is not None
