"""Matrix products of which each row of the result needs one row of the left side: what can be done in parts of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from torch import Tensor
from xdsl.ir import SSAValue

from vllm_ir.dialects.torch.arguments import OperandAttr
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.types import sizes_of
from vllm_ir.frontends.fx.schemas import resolve
from vllm_ir.frontends.fx.types import is_tensor
from vllm_ir.frontends.fx.values import decode

_ROWS: Mapping[str, tuple[int, ...]] = {
    "aten.mm.default": (0,),
    "aten.addmm.default": (1, 0),
    "aten.linear.default": (0,),
    "aten._scaled_mm.default": (0, 2),
}
"""The argument that is the left side, and those that have a row for each of its rows, or one row for all of them.

Schemas do not tell a product's left side from its right one, nor a bias from either; `test_async_tp.py` runs each of
these operators to see that its rows are computed apart.
"""


@dataclass(frozen=True)
class RowProduct:
    """A call of such an operator."""

    op: CallOp
    cut: tuple[int, ...]
    """The operands that are cut along with the rows, the left side first."""

    @property
    def key(self) -> object:
        """Equal for products that do the same to their operands, types aside."""
        return self.op.target, self.op.args, self.op.kwargs, self.cut

    def of(self, operands: Sequence[Tensor]) -> Tensor:
        """What the operator gives for other tensors in the place of its operands."""
        arguments = [decode(tree, operands, str) for tree in self.op.args.data]
        keywords = {} if self.op.kwargs is None else dict(self.op.kwargs.data)
        function = cast("Callable[..., Tensor]", resolve(self.op.target))
        return function(*arguments, **{name: decode(tree, operands, str) for name, tree in keywords.items()})


def row_product(op: object, left: SSAValue | None = None) -> RowProduct | None:
    """`op` as a product of two matrices; None if it is none, or if `left` is not its left side and nothing else."""
    if not isinstance(op, CallOp) or (places := _ROWS.get(op.target)) is None:
        return None
    if not all(is_tensor(operand.type) for operand in op.operands) or len(sizes_of(op.results[0].type)) != 2:
        return None
    trees = op.arguments()
    used = [op.operands[tree.index.data] for tree in trees if isinstance(tree, OperandAttr)]
    found = [tree.index.data for place in places if isinstance(tree := trees[place], OperandAttr)]
    first, *others = found
    rows = sizes_of(op.operands[first].type)
    if len(rows) != 2 or used.count(op.operands[first]) > 1 or (left is not None and op.operands[first] is not left):
        return None
    cut = [first]
    for index in others:
        sizes = sizes_of(op.operands[index].type)
        if len(sizes) < 2 or sizes[0] == 1:
            continue
        if sizes[0] != rows[0] or used.count(op.operands[index]) > 1:
            return None
        cut.append(index)
    return RowProduct(op, tuple(cut))


__all__ = ["RowProduct", "row_product"]
