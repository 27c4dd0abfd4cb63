"""Arithmetic on sizes: Python functions of an FX graph and the operations that stand for them."""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch
from xdsl.dialects import arith
from xdsl.ir import Operation

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
