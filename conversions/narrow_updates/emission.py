"""Writing the operations of a block anew: updates on whole tensors, and reads from the newest version that serves.

Operations come in the order in which the program needs them, each behind those that it depends on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import i32, i64
from xdsl.ir import Attribute, Block, Operation, SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder
from vllm_ir.conversions.convert_to_stablehlo.dtypes import element, shape
from vllm_ir.conversions.narrow_updates.analysis import Analysis
from vllm_ir.conversions.narrow_updates.boxes import BoxDimension, are_disjoint, with_own_dimensions
from vllm_ir.conversions.narrow_updates.indexed import Plan, gathered, plan_for, reached, scattered
from vllm_ir.conversions.narrow_updates.order import Needed, first_dependents, inputs_of
from vllm_ir.conversions.narrow_updates.versions import Part, Update, Version
from vllm_ir.conversions.narrow_updates.windows import Start, Window
from vllm_ir.conversions.rewrites import Rewrites
from vllm_ir.dialects.stablehlo import (
    AddOp,
    ClampOp,
    DivideOp,
    DynamicSliceOp,
    DynamicUpdateSliceOp,
    GatherOp,
    RemainderOp,
    ScatterOp,
)

Node: TypeAlias = "Operation | Version | SSAValue"
"""What is emitted: an operation of the program, a version of a tensor, or the read that gives a value."""


class Emission:
    """Emits the needed operations of a block into another one."""

    def __init__(self, needed: Needed, analysis: Analysis, rewrites: Rewrites) -> None:
        self.block = Block()
        self.b = Builder(self.block)
        self._analysis = analysis
        self._rewrites = rewrites
        made = {op for op, version in analysis.updates.items() if version.is_made}
        made |= {op for op in analysis.returns if analysis.parts[op.results[0]].version.position >= 0}
        self._firsts = first_dependents(needed, made)
        self._effects = needed.previous_effects()
        self._done: set[Node] = set()
        self._values: dict[SSAValue, SSAValue] = {}
        """New values for those of the program that get others."""
        self._wholes: dict[Version, dict[tuple[int, ...], SSAValue]] = {}
        """Versions in the shapes that they are needed in; first that in which they are made."""
        self._reads: dict[object, SSAValue] = {}
        self._plans: dict[Operation, Plan | None] = {}
        self._latest: dict[Operation, Version] = {}
        for op in needed.ops:
            if not analysis.is_part(op):
                self._emit(op)

    # --- order -----------------------------------------------------------------------------------------------------

    def _emit(self, node: Node) -> None:
        """Emit what a node depends on, and then it."""
        waiting: list[tuple[Node, Iterator[Node]]] = []
        if node not in self._done:
            waiting.append((node, iter(self._inputs(node))))
        while waiting:
            node, inputs = waiting[-1]
            following = next((found for found in inputs if found not in self._done), None)
            if following is not None:
                waiting.append((following, iter(self._inputs(following))))
                continue
            waiting.pop()
            if node not in self._done:
                self._done.add(node)
                self._build(node)

    def _inputs(self, node: Node) -> list[Node]:
        if isinstance(node, Version):
            return self._version_inputs(node)
        if isinstance(node, SSAValue):
            part = self._analysis.parts[node]
            values = [start.value for start in part.window.starts]
            return [*self._nodes(values), *self._version_node(self._newest(node))]
        if self._gather_plan(node) is not None:
            part = self._analysis.parts[node.operands[0]]
            values = [*node.operands[1:], *(start.value for start in part.window.starts)]
            return [*self._nodes(values), *self._version_node(self._newest_for(node, part))]
        found = self._nodes(inputs_of(node))
        return [*found, before] if (before := self._effects.get(node)) is not None else found

    def _version_inputs(self, version: Version) -> list[Node]:
        update, parent = version.update, version.parent
        if update is None or parent is None:
            return self._nodes([version.root.value])
        values = [*update.op.operands[1:], *(start.value for start in update.target.starts)]
        return [*self._nodes(values), *self._version_node(parent)]

    def _version_node(self, version: Version) -> list[Node]:
        return self._nodes([version.root.value]) if version.update is None else [version]

    def _nodes(self, values: Sequence[SSAValue]) -> list[Node]:
        nodes: list[Node] = []
        for value in values:
            if self._is_read(value):
                nodes.append(value)
            elif isinstance(owner := value.owner, Operation) and owner in self._firsts:
                nodes.append(owner)
        return nodes

    def _is_read(self, value: SSAValue) -> bool:
        """Whether a value is read from a version that is made as a whole."""
        part = self._analysis.parts.get(value)
        if part is None or part.version.root.value is value:
            return False
        return part.version.is_made and part.version.root.is_updated

    def _gather_plan(self, op: Operation) -> Plan | None:
        """How a gather from a part reads from the whole tensor, if it can."""
        if not isinstance(op, GatherOp) or not self._is_read(op.operand):
            return None
        if op not in self._plans:
            part = self._analysis.parts[op.operand]
            root = part.version.root
            plan = plan_for(op, part.window, root.box(part.window), root.shape)
            taken = plan is not None and self._rewrites.take(op, "reads from the newest tensor that serves")
            self._plans[op] = plan if taken else None
        return self._plans[op]

    def _newest_for(self, op: Operation, part: Part) -> Version:
        """The newest version in which what an operation reads is the same, and which does not depend on it."""
        if (found := self._latest.get(op)) is not None:
            return found
        window = reached(op, part.window) if isinstance(op, GatherOp) else part.window
        version, limit = part.version, self._firsts[op]
        while len(version.made) == 1:
            (following,) = version.made
            update = following.update
            if update is None or following.position >= limit or not are_disjoint(update.target, window):
                break
            version = following
        self._latest[op] = version
        return version

    def _newest(self, value: SSAValue) -> Version:
        """The newest version in which a part is the same, and which does not depend on it."""
        part, owner = self._analysis.parts[value], value.owner
        return self._newest_for(owner, part) if isinstance(owner, Operation) else part.version

    # --- operations ------------------------------------------------------------------------------------------------

    def _build(self, node: Node) -> None:
        if isinstance(node, Version):
            self._version(node)
        elif isinstance(node, SSAValue):
            self._at(node.owner)
            self._values[node] = self._read(self._newest(node), self._analysis.parts[node].window, shape(node))
        elif isinstance(node, GatherOp) and (plan := self._gather_plan(node)) is not None:
            self._at(node)
            whole = self._whole(self._newest_for(node, self._analysis.parts[node.operand]), plan.shape)
            self._values[node.result] = gathered(self.b, node, plan, whole, self._new, self._start)
        else:
            self._keep(node)

    def _at(self, owner: Operation | Block) -> None:
        if isinstance(owner, Operation):
            self.b.location = owner.location

    def _new(self, value: SSAValue) -> SSAValue:
        return self._values.get(value, value)

    def _keep(self, op: Operation) -> None:
        """An operation of the program, with new operands, also in its regions."""
        for inner in op.walk() if op.regions else (op,):
            for index, operand in enumerate(inner.operands):
                if (value := self._values.get(operand)) is not None:
                    inner.operands[index] = value
        op.detach()
        self.block.add_op(op)

    def _version(self, version: Version) -> None:
        update, parent = version.update, version.parent
        if update is None or parent is None:
            return
        self._at(update.op)
        updated = self._updated(update, parent)
        self._wholes[version] = {shape(updated): updated}
        for result in update.op.results:
            result_part = self._analysis.parts[result]
            if result_part.version is version and updated.name_hint is None:
                updated.name_hint = result.name_hint

    def _updated(self, update: Update, parent: Version) -> SSAValue:
        op = update.op
        if update.operand.is_whole:
            whole = self._whole(parent, shape(op.operands[0]))
            operands = [whole, *(self._new(value) for value in op.operands[1:])]
            regions = [region.clone() for region in op.regions]
            return self.b.emit(type(op), operands, op.results[0].type, op.properties, regions)
        if isinstance(op, ScatterOp):
            plan = _plan(op, update.operand, parent)
            whole = self._whole(parent, plan.shape)
            return scattered(self.b, op, plan, whole, self._new, self._start)
        box = _box(update.target, parent)
        whole = self._whole(parent, [entry.size for entry in box])
        source = _as_box(self.b, self._new(op.operands[1]), update.target, box)
        return self.b.emit(DynamicUpdateSliceOp, (whole, source, *self._starts(box)), whole.type)

    def _whole(self, version: Version, sizes: Sequence[int]) -> SSAValue:
        """A version in a shape."""
        if (shapes := self._wholes.get(version)) is None:
            value = self._new(version.root.value)
            shapes = self._wholes[version] = {shape(value): value}
        if (found := shapes.get(tuple(sizes))) is None:
            found = shapes[tuple(sizes)] = self.b.reshape(next(iter(shapes.values())), sizes)
        return found

    def _read(self, version: Version, window: Window, sizes: Sequence[int]) -> SSAValue:
        key = (version, window.key, tuple(sizes))
        if (found := self._reads.get(key)) is None:
            found = self._reads[key] = self._read_new(version, window, sizes)
        return found

    def _read_new(self, version: Version, window: Window, sizes: Sequence[int]) -> SSAValue:
        if window.is_whole:
            return self._whole(version, sizes)
        box = _box(window, version)
        whole = self._whole(version, [entry.size for entry in box])
        lengths = [entry.length for entry in box]
        if any(entry.starts for entry in box):
            properties = {"slice_sizes": self.b.integers(lengths)}
            kind = self.b.tensor(lengths, element(whole))
            value = self.b.emit(DynamicSliceOp, (whole, *self._starts(box)), kind, properties)
        else:
            firsts = [entry.first for entry in box]
            value = self.b.slice(whole, firsts, [entry.first + entry.length for entry in box])
        places = _long_places(box)
        if places != sorted(places):
            value = self.b.reshape(value, [window.sizes[at] for at in places])
            value = self.b.transpose(value, [places.index(at) for at in sorted(places)])
        return self.b.reshape(value, sizes)

    # --- starts ----------------------------------------------------------------------------------------------------

    def _starts(self, box: Sequence[BoxDimension]) -> list[SSAValue]:
        """Start of a box in each dimension, all of one type."""
        kinds = {element(start.value) for entry in box for start in entry.starts}
        kind: Attribute = i64 if kinds == {i64} or any(entry.size >= 2**31 for entry in box) else i32
        return [self._place(entry, kind) for entry in box]

    def _place(self, entry: BoxDimension, kind: Attribute) -> SSAValue:
        value = self._start(entry.starts, entry.first, kind)
        if entry.step != 1:
            value = self.b.binary(DivideOp, value, entry.step)
        return self.b.binary(RemainderOp, value, entry.size) if entry.wraps else value

    def _start(self, starts: Sequence[Start], first: int, kind: Attribute) -> SSAValue:
        total: SSAValue | None = None
        for start in starts:
            value = self._new(start.value)
            own = element(value)
            low, high = self.b.scalar(0, own), self.b.scalar(start.limit, own)
            clamped = self.b.convert(self.b.emit(ClampOp, (low, value, high), value.type), kind)
            total = clamped if total is None else self.b.binary(AddOp, total, clamped)
        if total is None:
            return self.b.scalar(first, kind)
        return self.b.binary(AddOp, total, first) if first else total


def _box(window: Window, version: Version) -> list[BoxDimension]:
    """A part of a version as a box, which it is known to be."""
    if (box := version.root.box(window)) is None:
        raise ValueError("a part of a tensor is not a box")
    return with_own_dimensions(box, version.root.shape)


def _plan(op: ScatterOp, window: Window, version: Version) -> Plan:
    """How a scatter on a part is one on the whole tensor, which is known to be possible."""
    if (plan := plan_for(op, window, version.root.box(window), version.root.shape)) is None:
        raise ValueError("a scatter on a part of a tensor cannot be moved")
    return plan


def _long_places(box: Sequence[BoxDimension]) -> list[int]:
    """Dimensions of the window that a box shows, in the order of the box."""
    return [entry.dimension for entry in box if entry.dimension is not None and entry.length != 1]


def _as_box(b: Builder, value: SSAValue, window: Window, box: Sequence[BoxDimension]) -> SSAValue:
    """A value of a window's shape in the shape of its box."""
    places = _long_places(box)
    if places != sorted(places):
        value = b.reshape(value, [window.sizes[at] for at in sorted(places)])
        value = b.transpose(value, [sorted(places).index(at) for at in places])
    return b.reshape(value, [entry.length for entry in box])
