"""Lists of sizes that say the same in other words: `-1`, a constant, or a value that holds the size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue

from vllm_ir.conversions.analysis.polynomials import Number, equal, parse
from vllm_ir.dialects.torch.arguments import OperandAttr
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.contract import SYMBOL
from vllm_ir.dialects.vllm_ir.expressions import UNKNOWN
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.dialects.vllm_ir.types import device_of, sizes_of, strides_of
from vllm_ir.frontends.fx.types import is_shaped, is_tensor

_Integer: TypeAlias = "Number | str | None"
"""A polynomial, or what is none, as text; None if nothing is known."""
_EXACT: Mapping[type[Operation], Callable[[Number, Number], Number]] = {
    arith.AddiOp: lambda one, other: one + other,
    arith.SubiOp: lambda one, other: one - other,
    arith.MuliOp: lambda one, other: one * other,
}
"""What polynomials are closed under."""
LEFT_OUT = IntegerAttr(-1, i64)
"""A size that the others leave."""


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

    def size(item: Attribute, op: Operation, given: int | str, rename: Callable[[Attribute], Attribute]) -> _Integer:
        return _parsed(given) if item == LEFT_OUT else _number(item, op, rename)

    return all(
        _equal(size(mine, ours, given, original), size(other_item, theirs, given, _same))
        for mine, other_item, given in zip(tree, other, sizes_of(kind), strict=True)
    )


def same_type(one: Attribute, other: Attribute) -> bool:
    """Whether two types are equal, sizes and strides as numbers: SymPy orders the factors of a product by name."""
    if one == other:
        return True
    if not is_tensor(one) or not is_tensor(other) or one.element_type != other.element_type:
        return False
    ours, theirs = strides_of(one), strides_of(other)
    if device_of(one) != device_of(other) or (ours is None) != (theirs is None):
        return False
    pairs = ((sizes_of(one), sizes_of(other)), (ours or (), theirs or ()))
    return all(
        len(mine) == len(yours) and all(_equal(_parsed(a), _parsed(b)) for a, b in zip(mine, yours, strict=True))
        for mine, yours in pairs
    )


def same_integers(
    tree: Attribute, other: Attribute, ours: Operation, theirs: Operation, original: Callable[[Attribute], Attribute]
) -> bool:
    """Whether two integer arguments, one of them a value, are equal for certain; arguments as for `same_sizes`."""
    if not isinstance(tree, OperandAttr) and not isinstance(other, OperandAttr):
        return False
    return _equal(_number(tree, ours, original), _number(other, theirs, _same))


def _same(kind: Attribute) -> Attribute:
    return kind


def _equal(one: _Integer, other: _Integer) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return one is not None and other is not None and equal(one, other)


def _parsed(size: int | str) -> _Integer:
    """A size of a type; one that is no polynomial (`s0//2`) equals what is written alike."""
    if isinstance(size, int) or size == UNKNOWN:
        return None if size == UNKNOWN else size
    number = parse(size)
    return size if number is None else number


def _number(item: Attribute, op: Operation, original: Callable[[Attribute], Attribute]) -> _Integer:
    """The integer that an argument is; None if nothing is known of it."""
    if isinstance(item, IntegerAttr):
        return item.value.data
    return _held(op.operands[item.index.data], original) if isinstance(item, OperandAttr) else None


def _held(value: SSAValue, original: Callable[[Attribute], Attribute]) -> _Integer:
    """The integer that a value holds: a symbol, the size of a tensor, or sums and products of such."""
    if isinstance(value, BlockArgument):
        function = value.block.parent_op()
        symbol = function.argument_attributes(value.index).get(SYMBOL) if isinstance(function, FuncOp) else None
        return _parsed(symbol.data) if isinstance(symbol, StringAttr) else None
    op = value.owner
    if isinstance(op, CallOp) and op.target == "aten.sym_size.int":
        _, dimension = op.arguments()
        kind = original(op.operands[0].type)
        if not isinstance(dimension, IntegerAttr) or not is_shaped(kind):
            return None
        return _parsed(sizes_of(kind)[dimension.value.data])
    if isinstance(op, arith.ConstantOp):
        return _number(op.properties["value"], op, original)
    function = _EXACT.get(type(op)) if isinstance(op, Operation) else None
    if function is None or not isinstance(op, Operation):
        return None
    numbers = [_held(operand, original) for operand in op.operands]
    known = [number for number in numbers if number is not None and not isinstance(number, str)]
    return function(*known) if len(known) == len(numbers) else None
