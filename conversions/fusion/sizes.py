"""Lists of sizes that say the same in other words: `-1`, a constant, or a value that holds the size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import IntegerAttr, StringAttr
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, SSAValue

from vllm_ir.dialects.torch.arguments import OperandAttr
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.contract import SYMBOL
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.dialects.vllm_ir.types import sizes_of
from vllm_ir.frontends.fx.types import is_shaped

Size: TypeAlias = int | str | None


def same_sizes(
    tree: Sequence[Attribute],
    other: Sequence[Attribute],
    ours: Operation,
    theirs: Operation,
    original: Callable[[Attribute], Attribute],
) -> bool:
    """Whether two lists of integers are equal when `-1` is the size of the result and values are what they hold.

    Args:
        tree: items of an argument of `ours`, an operation of a traced pattern.
        other: those of the same argument of `theirs`, an operation of the program, whose results are of the same types.
        ours: see above.
        theirs: see above.
        original: types of the pattern with the program's names for symbols.
    """
    if len(tree) != len(other) or len(ours.results) != 1:
        return False
    kind = theirs.results[0].type
    if not is_shaped(kind) or len(sizes_of(kind)) != len(tree):
        return False
    sizes = sizes_of(kind)
    mine = _resolved(tree, ours, sizes, original)
    others = _resolved(other, theirs, sizes, lambda kind: kind)
    return None not in mine and mine == others


def _resolved(
    items: Sequence[Attribute], op: Operation, sizes: Sequence[int | str], original: Callable[[Attribute], Attribute]
) -> list[Size]:
    found: list[Size] = []
    for item, size in zip(items, sizes, strict=True):
        if isinstance(item, IntegerAttr):
            found.append(size if item.value.data == -1 else item.value.data)
        elif isinstance(item, OperandAttr):
            found.append(size_of(op.operands[item.index.data], original))
        else:
            found.append(None)
    return found


def size_of(value: SSAValue, original: Callable[[Attribute], Attribute]) -> Size:
    """The symbol or the dimension of a tensor that an integer holds; None if it holds something else."""
    if isinstance(value, BlockArgument):
        function = value.block.parent_op()
        symbol = function.argument_attributes(value.index).get(SYMBOL) if isinstance(function, FuncOp) else None
        return symbol.data if isinstance(symbol, StringAttr) else None
    op = value.owner if isinstance(value, OpResult) else None
    if isinstance(op, CallOp) and op.target == "aten.sym_size.int":
        _, dimension = op.arguments()
        kind = original(op.operands[0].type)
        if isinstance(dimension, IntegerAttr) and is_shaped(kind):
            return sizes_of(kind)[dimension.value.data]
    return None
