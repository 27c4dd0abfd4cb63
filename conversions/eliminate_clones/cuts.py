"""Carrying out the cuts of a plan: copies that stay, copies that are added, operations that happen earlier."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from xdsl.dialects.builtin import NoneAttr, StringAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue, Use

from vllm_ir.conversions.analysis.regions import is_dense
from vllm_ir.conversions.analysis.windows import whole_window
from vllm_ir.conversions.eliminate_clones.plan import Cuts
from vllm_ir.conversions.eliminate_clones.schedule import positions, reorder
from vllm_ir.conversions.eliminate_clones.updates import called_overload, updates_of
from vllm_ir.conversions.errors import place_of
from vllm_ir.dialects.torch.call import REASON
from vllm_ir.dialects.vllm_ir.function import ReturnOp
from vllm_ir.dialects.vllm_ir.types import BufferType
from vllm_ir.frontends.fx.build import CallBuilder
from vllm_ir.frontends.fx.schemas import op_info
from vllm_ir.frontends.fx.types import is_tensor

aten = torch.ops.aten


def apply_cuts(block: Block, cuts: Cuts) -> None:
    """Change a function as its plan demands."""
    position = positions(block)
    for copy, reason in cuts.keep.items():
        copy.attributes[REASON] = StringAttr(reason)
    before = {op: set(others) for op, others in cuts.before.items()}
    for (value, op), reason in cuts.save.items():
        copy = _save(block, value, op, reason, position)
        before.setdefault(op, set()).add(copy)
    for (op, index), reason in cuts.copy.items():
        kind = op.operands[index].type
        copy = _copy(op.operands[index], op, reason, kind if _sees_strides(op) else _own_layout(kind))
        block.insert_op_before(copy, op)
        op.operands[index] = copy.results[0]
    reorder(block, before)


def _save(block: Block, value: SSAValue, op: Operation, reason: str, position: dict[Operation, int]) -> Operation:
    """Copy a value for its uses from `op` on; `op` itself keeps what it overwrites."""
    uses = list(_uses_from(value, op, position))
    exact = any(_sees_strides(use.operation) for use in uses)
    copy = _copy(value, op, reason, value.type if exact else _own_layout(value.type))
    producer = value.owner
    if isinstance(producer, Operation) and position[producer] > position[op]:
        block.insert_op_after(copy, producer)
    else:
        block.insert_op_before(copy, op)
    for use in uses:
        use.operation.operands[use.index] = copy.results[0]
    return copy


def _uses_from(value: SSAValue, op: Operation, position: dict[Operation, int]) -> Iterable[Use]:
    overwritten = {update.index for update in updates_of(op)}
    for use in value.uses:
        number = position.get(use.operation, -1)
        if number > position[op] or (use.operation is op and use.index not in overwritten):
            yield use


def _sees_strides(op: Operation) -> bool:
    """Whether operands of `op` must have the strides that their types record."""
    overload = called_overload(op)
    return isinstance(op, ReturnOp) or (overload is not None and op_info(overload).layout_sensitive)


def _own_layout(kind: Attribute) -> Attribute:
    """The type of a copy: the same strides where they leave no gaps, row-major otherwise."""
    if not is_tensor(kind) or is_dense(whole_window(kind)):
        return kind
    window = whole_window(kind)
    none = NoneAttr()
    return BufferType.new([window.shape, window.element_type, window.sizes, none, none, window.device]).tensor


def _copy(value: SSAValue, op: Operation, reason: str, kind: Attribute) -> Operation:
    """A copy of `value`, which `op` makes necessary."""
    made: list[Operation] = []
    b = CallBuilder(made.append)
    b.location = place_of(op)
    b.name = value.name_hint
    call = b.call(aten.clone.default, [value], [kind])
    call.attributes[REASON] = StringAttr(reason)
    return call
