"""Fused ops with a sum over ranks in them, as that sum and the op behind it, so that the sum can be scattered."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation

from vllm_ir.conversions.collectives import ALL_REDUCE, collective_of
from vllm_ir.conversions.errors import fail
from vllm_ir.conversions.inline import inline, replace_value
from vllm_ir.conversions.trace import Examples, trace_callable
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.frontends.fx.build import CallBuilder
from vllm_ir.frontends.fx.types import is_tensor
from vllm_ir.frontends.ops import ops
from vllm_ir.frontends.ops.collective_norms import BEHIND_SUM
from vllm_ir.frontends.ops.dialect import call_arguments


def fused_sums(function: FuncOp) -> Iterator[Operation]:
    """The operations of a function that are sums over ranks with another op behind, in order."""
    return (op for op in function.block.ops if op.name.removeprefix("vllm_ir.") in BEHIND_SUM)


def take_apart(op: Operation, examples: Examples) -> Operation:
    """Put the parts in the place of a fused op; returns the sum."""
    ir_op = ops[op.name.removeprefix("vllm_ir.")]
    behind = BEHIND_SUM[ir_op.name]

    def parts(*operands: object) -> object:
        given = dict(zip(ir_op.parameters, call_arguments(op, ir_op, operands), strict=True))
        total = ops.all_reduce(given.pop("x"), given.pop("group_name"))
        return behind(total, **given)

    block = op.parent
    if block is None:
        raise ValueError(f"{op.name} is not in a block")
    new: list[Operation] = []

    def insert(inserted: Operation) -> None:
        block.insert_op_before(inserted, op)
        new.append(inserted)

    b = CallBuilder(insert)
    b.at(op)
    traced = trace_callable(parts, [_tensor_type(op, value.type) for value in op.operands], examples, pure=True)
    for old, result in zip(op.results, inline(traced, list(op.operands), examples.original, b), strict=True):
        replace_value(old, result, b)
    op.detach()
    op.erase()
    return next(part for part in new if (found := collective_of(part)) is not None and found.kind == ALL_REDUCE)


def _tensor_type(op: Operation, kind: Attribute) -> TensorType[Attribute]:
    if not is_tensor(kind):
        fail(op, "has buffers as operands; run functionalize first")
    return kind
