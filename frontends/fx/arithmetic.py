"""Arithmetic on sizes: Python functions of an FX graph and the operations that stand for them."""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch
from xdsl.dialects import arith
from xdsl.ir import Operation

INTEGER_OPERATIONS: dict[Callable[..., object], type[Operation]] = {
    operator.add: arith.AddiOp,
    operator.sub: arith.SubiOp,
    operator.mul: arith.MuliOp,
    operator.floordiv: arith.FloorDivSIOp,  # pyright: ignore[reportUnknownMemberType]  # declared without types
    torch.sym_max: arith.MaxSIOp,  # pyright: ignore[reportUnknownMemberType]  # has no types
    torch.sym_min: arith.MinSIOp,  # pyright: ignore[reportUnknownMemberType]  # has no types
}
"""By function of two integers; equal results for all integers."""

INTEGER_FUNCTIONS: dict[type[Operation], Callable[..., object]] = {
    operation: function for function, operation in INTEGER_OPERATIONS.items()
}
"""The same, by operation."""
