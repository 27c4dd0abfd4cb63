"""What is known of values that ranks hold in pieces, and which operations may work on pieces.

An operation that carries `vllm_ir.sharded = {dim = 0 : i64, group = "tp"}` gives pieces: rank r of the group has the
r-th of equal pieces, cut along the first dimension, of a value that all ranks would have the same. If the rows do not
go into equal pieces, rows without meaning follow them.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import Operation

from vllm_ir.conversions.value_views import callee_of
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.high_level import OperandEffects
from vllm_ir.dialects.vllm_ir.memory import RelayoutOp
from vllm_ir.frontends.fx.types import is_tensor
from vllm_ir.frontends.ops import ops
from vllm_ir.frontends.ops.dialect import operand_segments

SHARDED = "vllm_ir.sharded"


@dataclass(frozen=True)
class Sharding:
    """How pieces were cut."""

    dimension: int
    group: str

    def __str__(self) -> str:
        return f"dimension {self.dimension} of group {self.group!r}"

    @property
    def attribute(self) -> DictionaryAttr:
        """As operations carry it."""
        return DictionaryAttr({"dim": IntegerAttr(self.dimension, i64), "group": StringAttr(self.group)})


def is_registered(op: Operation) -> bool:
    """Whether an operation stands for a call of a registered op."""
    return op.has_trait(OperandEffects) and op.name.removeprefix("vllm_ir.") in ops


def row_operands(op: Operation) -> tuple[int, ...] | None:
    """The operands of which each row of each result needs only the same row; None if results are not made so.

    For a registered op that is declared row-wise they are its activations. Of torch's pointwise operators they are all
    tensors, so that no operand is left of which it matters whether all ranks have the same. Another layout changes no
    row.
    """
    if not op.results or not all(is_tensor(value.type) for value in op.results):
        return None
    if isinstance(op, RelayoutOp):
        return (0,)
    if isinstance(op, CallOp):
        if not callee_of(op).is_pointwise or op.update_indices:
            return None
        return tuple(index for index, value in enumerate(op.operands) if is_tensor(value.type))
    if not is_registered(op):
        return None
    ir_op = ops[op.name.removeprefix("vllm_ir.")]
    return _activations(op, ir_op.activation_indices, operand_segments(op, ir_op)) if ir_op.row_wise else None


def _activations(op: Operation, activations: tuple[int, ...], segments: list[int | bool | None]) -> tuple[int, ...]:
    """The operands that an op's activations are, counted through the arguments in front of them."""
    found: list[int] = []
    position = 0
    for index, segment in enumerate(segments):
        count = int(segment or 0)
        if index in activations:
            found.extend(range(position, position + count))
        position += count
    return tuple(index for index in found if is_tensor(op.operands[index].type))
