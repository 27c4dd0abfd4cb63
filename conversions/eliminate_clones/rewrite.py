"""Carrying out a plan: values in memory that is written become buffers, updates become writes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Operation, SSAValue

from vllm_ir.conversions.analysis.aliases import Place, Storage, viewed_overload
from vllm_ir.conversions.eliminate_clones.plan import Decision, Plan, name_of, passed_on
from vllm_ir.conversions.eliminate_clones.updates import Update, called_overload, view_arguments
from vllm_ir.dialects.torch.arguments import operand_indices
from vllm_ir.dialects.torch.call import REASON, CallOp, index_array
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.dialects.vllm_ir.memory import AllocOp, ReadOp, RelayoutOp, ViewOp, WriteOp
from vllm_ir.dialects.vllm_ir.types import BufferType, strides_of
from vllm_ir.frontends.fx.binding import memory_effects
from vllm_ir.frontends.fx.build import CallBuilder
from vllm_ir.frontends.fx.interning import symbol
from vllm_ir.frontends.fx.schemas import op_info
from vllm_ir.frontends.fx.torch_objects import Overload, schema_of
from vllm_ir.frontends.fx.types import is_tensor

aten = torch.ops.aten


def rewrite(plan: Plan) -> None:
    """Make the function of a plan that has no cuts do what the plan says."""
    _Rewriter(plan).run()


class _Rewriter:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.function: FuncOp = plan.function
        self.block = plan.function.block
        self.buffers: dict[SSAValue, SSAValue] = {}
        """The windows that stand for values in memory that is written."""
        self.overwritten = _overwritten(plan)
        self.anchor: Operation = self.function.terminator
        self.b = CallBuilder(lambda op: self.block.insert_op_before(op, self.anchor))
        self.dead: list[Operation] = []

    def run(self) -> None:
        for op in list(self.block.ops):
            self.anchor = op
            self.b.at(op)
            self._visit(op)
        for op in reversed(self.dead):
            op.detach()
            op.erase(safe_erase=False)
        self._separate_results()
        self._erase_unused()
        if self.plan.written:
            self.function.properties.pop("functional", None)

    def _visit(self, op: Operation) -> None:
        decisions = self.plan.decisions.get(op, ())
        if isinstance(op, WriteOp):
            self._write(op, decisions)
        elif decisions and decisions[0].place is not None:
            self._update(op, decisions)
        elif (source := passed_on(op)) is not None:
            self._pass_on(op, source)
        elif isinstance(op, RelayoutOp) and op.result in self.overwritten and op.value in self.buffers:
            self._pass_on(op, op.value)  # the same memory, whatever layout the values are said to have
        elif isinstance(op, ReadOp) and self._is_memory(op.result):
            self.buffers[op.result] = op.buffer
            self.dead.append(op)
        elif isinstance(op, CallOp) and (places := self._viewed(op)):
            self._view(op, places)
        else:
            self._read_operands(op)
            self._allocate(op)

    def _is_memory(self, value: SSAValue) -> bool:
        return self._storage(value) in self.plan.written

    def _storage(self, value: SSAValue) -> Storage | None:
        place = self.plan.aliases.places.get(value)
        return None if place is None else place.storage

    # Values and their windows

    def value(self, value: SSAValue) -> SSAValue:
        """A value as a tensor: read here, if it is in memory that is written."""
        if value not in self.buffers:
            return value
        read = ReadOp.create(operands=[self.buffers[value]], result_types=[value.type])
        return self.b.add(read).results[0]

    def _pass_on(self, op: Operation, source: SSAValue) -> None:
        if source in self.buffers:
            self.buffers[op.results[0]] = self.buffers[source]
        else:
            op.results[0].replace_all_uses_with(source)
        self.dead.append(op)

    def _viewed(self, op: CallOp) -> list[Place]:
        """The places of the results, if the call only makes known windows onto memory that is written."""
        if viewed_overload(op) is None or op.operands[0] not in self.buffers:
            return []
        places = [self.plan.aliases.places[result] for result in op.results]
        base = self._storage(op.operands[0])
        known = all(place.storage is base and place.window is not None for place in places)
        return places if known else []

    def _view(self, op: CallOp, places: Sequence[Place]) -> None:
        windows = [place.window for place in places if place.window is not None]
        properties: dict[str, Attribute] = {"callee": op.callee, "args": op.args}
        if op.kwargs is not None:
            properties["kwargs"] = op.kwargs
        operands = [self.buffers[op.operands[0]], *op.operands[1:]]
        view = self.b.add(ViewOp.create(operands=operands, result_types=windows, properties=properties))
        self.buffers.update(zip(op.results, view.results, strict=True))
        self.dead.append(op)

    def _allocate(self, op: Operation) -> None:
        """Results that are written later become memory."""
        for result in op.results:
            if (window := self._written_window(result)) is not None:
                self.block.insert_op_after(self._alloc(op, result, result, window), op)

    def _written_window(self, result: SSAValue) -> BufferType | None:
        """The memory that a result becomes, if it is written later."""
        storage = self._storage(result)
        if storage is None or storage.root is not result or storage not in self.plan.written:
            return None
        return self.plan.aliases.places[result].window

    def _alloc(self, op: Operation, result: SSAValue, value: SSAValue, window: BufferType) -> AllocOp:
        """Memory that stands for `result` of `op`, and holds `value` at first."""
        alloc = AllocOp.create(operands=[value], result_types=[window])
        alloc.location = op.location
        alloc.results[0].name_hint = result.name_hint
        self.buffers[result] = alloc.buffer
        return alloc

    # Operations

    def _read_operands(self, op: Operation) -> None:
        """Let an operation read from memory what is in memory."""
        if not any(operand in self.buffers for operand in op.operands):
            return
        overload = called_overload(op)
        direct = isinstance(op, CallOp) and overload is not None and op.updates is None
        for index, operand in enumerate(op.operands):
            if operand in self.buffers:
                # A view that is here has no window onto this memory: it may not take such strides.
                exact = overload is not None and (op_info(overload).layout_sensitive or op_info(overload).is_view)
                window = self.buffers[operand]
                fits = not exact or strides_of(window.type) == strides_of(operand.type)
                op.operands[index] = window if direct and fits else self.value(operand)
        if isinstance(op, CallOp) and overload is not None and direct:
            reads, _ = memory_effects(op_info(overload), op.arguments(), op.operands)
            if reads:
                op.properties["reads"] = index_array(reads)

    def _write(self, op: WriteOp, decisions: Sequence[Decision]) -> None:
        if decisions and decisions[0].done:
            self.dead.append(op)
        else:
            op.operands[0] = self.value(op.value)

    def _update(self, op: Operation, decisions: Sequence[Decision]) -> None:
        update = decisions[0].update
        if not isinstance(op, CallOp):
            raise TypeError(f"{op.name} is no update")
        if update.view is not None and update.piece is not None:
            self._copy_piece(op, update, done=decisions[0].done)
        else:
            self._call_in_place(op, [decision.update for decision in decisions])
        for decision in decisions:
            if decision.update.result is not None:
                self.buffers[decision.update.result] = self.buffers[decision.update.old]
        self.dead.append(op)

    def _copy_piece(self, op: CallOp, update: Update, *, done: bool) -> None:
        place = self.plan.decisions[op][0].place
        if done or update.view is None or update.piece is None or place is None or place.window is None:
            return
        args, integers = view_arguments(update)
        window = self.b.add(
            ViewOp.create(
                operands=[self.buffers[update.old], *integers],
                result_types=[place.window],
                properties={"callee": symbol(str(update.view)), "args": args},
            )
        ).results[0]
        piece = op.operands[update.piece]
        copy = self.b.call(aten.copy_.default, [window, self.buffers.get(piece, piece), False], [window.type])
        copy.properties["returns"] = index_array([0])
        _state_effects(copy, aten.copy_.default)

    def _call_in_place(self, op: CallOp, updates: Sequence[Update]) -> None:
        """The operator that writes, on the windows themselves."""
        overload = updates[0].form
        operands = [self.buffers.get(operand, operand) for operand in op.operands]
        own = op.results[: len(op.results) - len(updates)]
        types, aliased = _results(overload, op, operands, [result.type for result in own])
        properties = {name: value for name, value in op.properties.items() if name != "updates"}
        properties["callee"] = symbol(str(overload))
        call = CallOp.create(operands=operands, result_types=types, properties=properties)
        _state_effects(call, overload)
        if any(index >= 0 for index in aliased):
            call.properties["returns"] = index_array(aliased)
        self.b.add(call)
        fresh = [result for result, index in zip(call.results, aliased, strict=True) if index < 0]
        for old, new in zip(own, fresh, strict=True):
            if (window := self._written_window(old)) is None:
                old.replace_all_uses_with(new)
            else:
                self.b.add(self._alloc(op, old, new, window))

    def _separate_results(self) -> None:
        """Copy a value that is returned as several tensors, of which each is memory of its own."""
        terminator, seen = self.function.terminator, set[SSAValue]()
        for index, value in enumerate(terminator.operands):
            if value in seen and is_tensor(value.type):
                copy = self.b.call(aten.clone.default, [value], [value.type])
                copy.attributes[REASON] = StringAttr(f"{name_of(value)} is returned as two tensors")
                terminator.operands[index] = copy.results[0]
            seen.add(value)

    def _erase_unused(self) -> None:
        for op in reversed(list(self.block.ops)):
            if isinstance(op, ViewOp | ReadOp) and not any(result.uses for result in op.results):
                op.detach()
                op.erase()


def _overwritten(plan: Plan) -> set[SSAValue]:
    """The values whose memory an update takes, and those that they are views of."""
    found: set[SSAValue] = set()
    for value in plan.overwritten.values():
        while value not in found:
            found.add(value)
            owner = value.owner
            if value in plan.overwritten:
                value = plan.overwritten[value]
            elif isinstance(owner, Operation) and _leads_back(owner):
                value = owner.operands[0]
    return found


def _leads_back(op: Operation) -> bool:
    """Whether what an operation gives is where its first operand is."""
    return isinstance(op, RelayoutOp) or viewed_overload(op) is not None or passed_on(op) is not None


def _state_effects(call: CallOp, overload: Overload) -> None:
    reads, writes = memory_effects(op_info(overload), call.arguments(), call.operands)
    if reads:
        call.properties["reads"] = index_array(reads)
    if writes:
        call.properties["writes"] = index_array(writes)


def _results(
    overload: Overload, op: CallOp, operands: Sequence[SSAValue], own: Sequence[Attribute]
) -> tuple[list[Attribute], list[int]]:
    """Types of the results of a writing call, and for each the operand whose buffer it is (-1 for a new tensor)."""
    schema = schema_of(overload)
    remaining = iter(own)
    types: list[Attribute] = []
    aliased: list[int] = []
    for returned in schema.returns:
        if returned.alias_info is None:
            types.append(next(remaining))
            aliased.append(-1)
            continue
        marks = returned.alias_info.before_set
        position = next(
            i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.before_set == marks
        )
        for index in operand_indices([op.arguments()[position]]):
            types.append(operands[index].type)
            aliased.append(index)
    types.extend(remaining)
    aliased.extend([-1] * (len(types) - len(aliased)))
    return types, aliased
