"""Updates: operations that give a new value of something that they could as well write in place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import torch
from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute, Operation, OpResult, SSAValue

from vllm_ir.conversions.analysis.aliases import AliasSets, Place
from vllm_ir.dialects.torch.arguments import OperandAttr, map_operands, operand_indices
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.memory import RelayoutOp, WriteOp
from vllm_ir.dialects.vllm_ir.types import BufferType, element_type_of, sizes_of
from vllm_ir.frontends.fx.schemas import inplace_form, resolve, scattered_view, writes_parts
from vllm_ir.frontends.fx.torch_objects import Overload, is_overload
from vllm_ir.frontends.fx.types import is_shaped
from vllm_ir.frontends.fx.values import operand_reference

aten = torch.ops.aten


@dataclass(frozen=True)
class Update:
    """One operand whose memory could take the new value that an operation gives."""

    op: Operation
    index: int
    """The operand: the old value, or the buffer of a final write."""
    result: OpResult | None
    """The new value; None for a final write."""
    form: Overload
    """The operator that writes in place: the call's own, its in-place overload, or `copy_` of a piece."""
    piece: int | None = None
    """The operand that is copied in, if all that happens is a copy."""
    view: Overload | None = None
    """The view of the old value that the piece is copied to; None for the whole."""

    @property
    def old(self) -> SSAValue:
        """The value, or buffer, that would be overwritten."""
        return self.op.operands[self.index]


def updates_of(op: Operation) -> Iterator[Update]:
    """The updates that an operation makes, in the order of its results."""
    if isinstance(op, WriteOp):
        yield Update(op, 1, None, aten.copy_.default, piece=0)
        return
    overload = called_overload(op)
    if overload is None or not isinstance(op, CallOp):
        return
    if op.updates is not None:
        own = len(op.results) - len(op.update_indices)
        for index, result in zip(op.update_indices, op.results[own:], strict=True):
            yield Update(op, index, result, overload)
        return
    yield from _functional_update(op, overload)


def _functional_update(op: CallOp, overload: Overload) -> Iterator[Update]:
    view = scattered_view(overload)
    if view is None and not writes_parts(overload):
        return
    old = _operand(op.args, 0)
    if old is None or len(op.results) != 1 or not _same_kind(op.operands[old], op.results[0]):
        return
    if view is not None:
        piece = _operand(op.args, 1)
        if piece is not None:
            yield Update(op, old, op.results[0], aten.copy_.default, piece, view)
    elif old in operand_indices(op.arguments()[1:]):
        return  # in place, the operator would read what it has written
    elif (form := inplace_form(overload)) is not None:
        yield Update(op, old, op.results[0], form)


def view_arguments(update: Update) -> tuple[ArrayAttr[Attribute], list[SSAValue]]:
    """Arguments of the view that takes the piece of a scatter: operand 0 for the base, then the integers given."""
    op = update.op
    if not isinstance(op, CallOp):
        raise TypeError(f"{op.name} does not scatter")
    trees = [tree for position, tree in enumerate(op.args.data) if position != 1]
    integers = [index for index in dict.fromkeys(operand_indices(trees)) if index != update.index]
    places = {update.index: operand_reference(0)} | {
        index: operand_reference(number) for number, index in enumerate(integers, 1)
    }
    return ArrayAttr([map_operands(tree, places) for tree in trees]), [op.operands[index] for index in integers]


def piece_window(update: Update, base: Place, aliases: AliasSets) -> BufferType | None:
    """The window that an update overwrites if its old value is at `base`; None if it is not known."""
    if update.view is None or base.window is None:
        return base.window
    args, integers = view_arguments(update)
    windows = aliases.windows.of(update.view, args, None, base.window, integers)
    return windows[0] if windows is not None and len(windows) == 1 else None


def called_overload(op: Operation) -> Overload | None:
    """The operator of a call; None for anything else."""
    return _overload_named(op.callee.root_reference.data) if isinstance(op, CallOp) else None


@cache
def _overload_named(name: str) -> Overload | None:
    target = None if name.startswith("python.") else resolve(name)
    return target if is_overload(target) else None


def _operand(args: ArrayAttr[Attribute], position: int) -> int | None:
    argument = args.data[position] if position < len(args.data) else None
    return argument.index.data if isinstance(argument, OperandAttr) else None


def _same_kind(old: SSAValue, new: SSAValue) -> bool:

    if not is_shaped(old.type) or not is_shaped(new.type):
        return False
    return element_type_of(old.type) == element_type_of(new.type) and sizes_of(old.type) == sizes_of(new.type)


def copied_operand(op: Operation) -> SSAValue | None:
    """The operand that `op` only copies, with the strides that it has; None if it does anything else."""
    if isinstance(op, RelayoutOp):
        return op.value if op.value.type == op.result.type else None
    overload = called_overload(op)
    if overload not in (aten.clone.default, aten.lift_fresh_copy.default):
        return None
    return op.operands[0] if op.operands[0].type == op.results[0].type else None
