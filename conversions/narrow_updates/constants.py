"""Values that are known, and values that are equal."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.traits import is_side_effect_free

from vllm_ir.conversions.convert_to_stablehlo.dtypes import shape
from vllm_ir.dialects.stablehlo import ConstantOp

_DEEP = 16
"""How many operations behind each other are compared; it bounds the work, not what is right."""


def integer_of(value: SSAValue) -> int | None:
    """The integer that a tensor without dimensions is known to be."""
    if not isinstance(value, OpResult) or not isinstance(value.op, ConstantOp) or shape(value):
        return None
    first = next(iter(value.op.value.iter_attrs()))
    return first.value.data if isinstance(first, IntegerAttr) else None


class Equals:
    """Finds values that are computed in the same way from the same ones.

    `is_leaf` tells which values are only equal to themselves.
    """

    def __init__(self, is_leaf: Callable[[SSAValue], bool]) -> None:
        self._is_leaf = is_leaf
        self._firsts: dict[SSAValue, SSAValue] = {}
        self._known: dict[object, SSAValue] = {}

    def first(self, value: SSAValue, depth: int = _DEEP) -> SSAValue:
        """The first value asked for that is equal to this one."""
        if (found := self._firsts.get(value)) is not None:
            return found
        op = value.owner
        if not isinstance(op, Operation) or op.regions or len(op.results) != 1 or depth == 0 or self._is_leaf(value):
            return value
        if not is_side_effect_free(op):
            return value
        operands = tuple(self.first(operand, depth - 1) for operand in op.operands)
        key = (op.name, operands, tuple(op.properties.items()), tuple(op.attributes.items()), value.type)
        found = self._firsts[value] = self._known.setdefault(key, value)
        return found
