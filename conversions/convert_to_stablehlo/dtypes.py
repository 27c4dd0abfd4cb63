"""Facts about element types, and PyTorch's rules of promotion on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

import ml_dtypes
import numpy as np
import torch
from xdsl.dialects.builtin import (
    AnyFloat,
    ComplexType,
    IntegerType,
    Signedness,
    TensorType,
    bf16,
    f8E4M3FN,
    f8E4M3FNUZ,
    f8E5M2,
    f8E5M2FNUZ,
    f8E8M0FNU,
    f16,
    f32,
    f64,
    i1,
    i64,
)
from xdsl.ir import Attribute, SSAValue

from vllm_ir.frontends.fx.types import element_type, known_dtype

Number: TypeAlias = bool | int | float | complex
Operand: TypeAlias = SSAValue | Number
"""An argument of an elementwise operator: a tensor, or a number that takes part in its computation."""

i8, i16, i32 = IntegerType(8), IntegerType(16), IntegerType(32)
ui8, ui16, ui32, ui64 = (IntegerType(width, Signedness.UNSIGNED) for width in (8, 16, 32, 64))
complex64, complex128 = ComplexType(f32), ComplexType(f64)

_NUMPY: dict[Attribute, np.dtype[np.generic]] = {
    kind: np.dtype(scalar)
    for kind, scalar in (
        *((i1, np.bool_), (i8, np.int8), (i16, np.int16), (i32, np.int32), (i64, np.int64)),
        *((ui8, np.uint8), (ui16, np.uint16), (ui32, np.uint32), (ui64, np.uint64)),
        *((f16, np.float16), (bf16, ml_dtypes.bfloat16), (f32, np.float32), (f64, np.float64)),
        *((f8E4M3FN, ml_dtypes.float8_e4m3fn), (f8E5M2, ml_dtypes.float8_e5m2)),
        *((f8E4M3FNUZ, ml_dtypes.float8_e4m3fnuz), (f8E5M2FNUZ, ml_dtypes.float8_e5m2fnuz)),
        *((f8E8M0FNU, ml_dtypes.float8_e8m0fnu), (complex64, np.complex64), (complex128, np.complex128)),
    )
}
_PARTS: dict[Attribute, Attribute] = {complex64: f32, complex128: f64}
_UNSIGNED: frozenset[Attribute] = frozenset((ui8, ui16, ui32, ui64))
_NARROW = frozenset((f16, bf16, f8E4M3FN, f8E5M2, f8E4M3FNUZ, f8E5M2FNUZ, f8E8M0FNU))


def is_convertible(element: Attribute) -> bool:
    """Whether StableHLO has this element type."""
    return element in _NUMPY


def numpy_dtype(element: Attribute) -> np.dtype[np.generic]:
    """The numpy type of an element type."""
    return _NUMPY[element]


def packed(value: Number, element: Attribute) -> bytes:
    """The bytes of one element, converted like PyTorch converts a Python number."""
    kind = _NUMPY[element]
    if isinstance(element, IntegerType):
        if element == i1:
            return b"\1" if value else b"\0"
        if not isinstance(value, complex):
            return (int(value) & ((1 << 8 * kind.itemsize) - 1)).to_bytes(kind.itemsize, "little")
    with np.errstate(over="ignore"):
        return np.array(value, kind).tobytes()


def is_float(element: Attribute) -> bool:
    """Whether elements are real floating-point numbers."""
    return isinstance(element, AnyFloat)


def is_complex(element: Attribute) -> bool:
    """Whether elements are complex numbers."""
    return isinstance(element, ComplexType)


def part_of(element: Attribute) -> Attribute:
    """Type of the real part of complex elements; other types are their own."""
    return complex_part if (complex_part := _PARTS.get(element)) is not None else element


def is_integer(element: Attribute) -> bool:
    """Whether elements are integers, but not booleans."""
    return isinstance(element, IntegerType) and element != i1


def is_unsigned(element: Attribute) -> bool:
    """Whether elements are unsigned integers."""
    return element in _UNSIGNED


def is_narrow(element: Attribute) -> bool:
    """Whether PyTorch's CPU kernels compute in `f32` and round once."""
    return element in _NARROW


def computation_type(element: Attribute) -> Attribute:
    """What a result of this type is computed in."""
    return f32 if element in _NARROW else element


def bits_of(element: Attribute) -> int:
    """Bits of one element in memory."""
    return 8 * _NUMPY[element].itemsize


def lowest(element: Attribute) -> Number:
    """The number below all others: minus infinity, or the smallest integer."""
    if is_float(element):
        return -float("inf")
    return False if element == i1 else 0 if element in _UNSIGNED else -(1 << (bits_of(element) - 1))


def highest(element: Attribute) -> Number:
    """The number above all others: infinity, or the largest integer."""
    if is_float(element):
        return float("inf")
    return True if element == i1 else (1 << (bits_of(element) - (element not in _UNSIGNED))) - 1


def shape(value: SSAValue) -> tuple[int, ...]:
    """Sizes of a tensor value."""
    kind = value.type
    if not isinstance(kind, TensorType):
        raise TypeError(f"{kind} is not a tensor")
    return kind.get_shape()


def element(value: SSAValue) -> Attribute:
    """Element type of a tensor value."""
    kind = value.type
    if not isinstance(kind, TensorType):
        raise TypeError(f"{kind} is not a tensor")
    return cast("TensorType[Attribute]", kind).element_type


def promoted(operands: Sequence[Operand]) -> Attribute:
    """The type that PyTorch computes in: tensors with dimensions count before those without, and these before numbers.

    A lower category only decides where its kind (bool, integer, float, complex) is above those before it.
    """
    groups: list[torch.dtype | None] = [None, None, None]
    for operand in operands:
        if isinstance(operand, SSAValue):
            category, dtype = (0 if shape(operand) else 1), known_dtype(element(operand))
        else:
            category, dtype = 2, _number_dtype(operand)
        known = groups[category]
        groups[category] = dtype if known is None else torch.promote_types(known, dtype)
    return element_type(_combined(groups[0], _combined(groups[1], groups[2])) or torch.float32)


def _number_dtype(value: Number) -> torch.dtype:
    if isinstance(value, bool):
        return torch.bool
    if isinstance(value, int):
        return torch.int64
    default = torch.get_default_dtype()
    return default if isinstance(value, float) else torch.complex128 if default == torch.float64 else torch.complex64


def _rank(dtype: torch.dtype) -> int:
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 0 if dtype == torch.bool else 1


def _combined(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    if higher is None or lower is None:
        return lower if higher is None else higher
    if _rank(higher) >= _rank(lower):
        return higher
    return torch.promote_types(higher, lower)
