"""Arithmetic on sizes: Python functions of an FX graph and the operations that stand for them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import cast

import torch
from xdsl.dialects import arith
from xdsl.ir import Operation

from vllm_ir.frontends.fx.errors import FxImportError, error_summary

INTEGER_FUNCTIONS: dict[type[Operation], Callable[..., object]] = {
    arith.AddiOp: operator.add,
    arith.SubiOp: operator.sub,
    arith.MuliOp: operator.mul,
    arith.FloorDivSIOp: operator.floordiv,  # pyright: ignore[reportUnknownMemberType]  # declared without types
    arith.MaxSIOp: torch.sym_max,  # pyright: ignore[reportUnknownMemberType]  # has no types
    arith.MinSIOp: torch.sym_min,  # pyright: ignore[reportUnknownMemberType]  # has no types
}
"""What each operation computes from two integers."""

INTEGER_OPERATIONS: dict[object, type[Operation]] = {
    function: operation for operation, function in INTEGER_FUNCTIONS.items()
}
"""The operation for each of these functions."""

_GROWING = cast("tuple[object, ...]", (operator.pow, operator.lshift))  # pyright: ignore[reportUnknownMemberType]  # untyped


def compute(function: Callable[..., object], operands: Sequence[object]) -> object:
    """What a function gives for numbers, symbolic ones among them.

    Raises:
        FxImportError: it does not take them, or gives an integer of more than 64 bits.
    """
    name: str = getattr(function, "__name__", str(function))
    try:
        if function in _GROWING and isinstance(operands[-1], int) and operands[-1] > 64:
            raise OverflowError(f"{operands[-1]} is too large an exponent")
        value = function(*operands)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise FxImportError(f"{name} has no value: {error_summary(error)}") from error
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise FxImportError(f"{name} gives an integer of more than 64 bits")
    return value
