"""Values of an evaluation: numpy arrays, the element types that they have, and rounding to them.

An array is never written after it was made: several values may be windows onto one memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import ml_dtypes
import numpy as np
import numpy.typing as npt
from xdsl.dialects.builtin import (
    ComplexType,
    DenseIntOrFPElementsAttr,
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
from xdsl.ir import Attribute, Operation

Array: TypeAlias = npt.NDArray[Any]  # Any: which elements an array has is known only when it runs
Element: TypeAlias = np.dtype[Any]  # Any: the same

_WIDTHS = (8, 16, 32)
ELEMENTS: Mapping[Attribute, Element] = {
    i1: np.dtype(np.bool_),
    i64: np.dtype(np.int64),
    **{IntegerType(width): np.dtype(f"int{width}") for width in _WIDTHS},
    **{IntegerType(width, Signedness.UNSIGNED): np.dtype(f"uint{width}") for width in (*_WIDTHS, 64)},
    f16: np.dtype(np.float16),
    f32: np.dtype(np.float32),
    f64: np.dtype(np.float64),
    bf16: np.dtype(ml_dtypes.bfloat16),
    f8E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
    f8E5M2: np.dtype(ml_dtypes.float8_e5m2),
    f8E4M3FNUZ: np.dtype(ml_dtypes.float8_e4m3fnuz),
    f8E5M2FNUZ: np.dtype(ml_dtypes.float8_e5m2fnuz),
    f8E8M0FNU: np.dtype(ml_dtypes.float8_e8m0fnu),
    ComplexType(f32): np.dtype(np.complex64),
    ComplexType(f64): np.dtype(np.complex128),
}
"""The numpy type of each element type."""
_FOREIGN = frozenset(found for found in ELEMENTS.values() if found.type.__module__ == "ml_dtypes")
"""Types that are not numpy's own; `float32` holds all their numbers."""
_NARROW = _FOREIGN | {np.dtype(np.float16)}


def element_of(kind: Attribute) -> Element:
    """The numpy type for an element type; `ValueError` if there is none."""
    if (found := ELEMENTS.get(kind)) is None:
        raise ValueError(f"elements of type {kind} cannot be evaluated")
    return found


def tensor_type(kind: Attribute) -> TensorType[Attribute]:
    """A type that must be one of tensors; `ValueError` if it is not."""
    if not isinstance(kind, TensorType):
        raise ValueError(f"values of type {kind} cannot be evaluated")
    return cast("TensorType[Attribute]", kind)


def result_type(op: Operation) -> TensorType[Attribute]:
    """The type of the first result of an operation."""
    return tensor_type(op.results[0].type)


def result_element(op: Operation) -> Element:
    """What elements the first result of an operation has."""
    return element_of(result_type(op).element_type)


def described(array: Array) -> str:
    """Element type and shape, for messages."""
    return f"{array.dtype}{list(array.shape)}"


def is_float(element: Element) -> bool:
    """Whether elements are real floating-point numbers."""
    return element.kind == "f" or element in _FOREIGN


def is_complex(element: Element) -> bool:
    """Whether elements are complex numbers."""
    return element.kind == "c"


def is_integer(element: Element) -> bool:
    """Whether elements are integers, but not booleans."""
    return element.kind in "iu"


def float_bits(element: Element) -> tuple[int, int]:
    """How many bits a floating-point type has for exponents, and for what is behind the leading digit."""
    limits = cast("np.finfo[np.floating[Any]]", ml_dtypes.finfo(element))  # Any: it depends on the element
    return int(limits.nexp), int(limits.nmant)


def parts(array: Array) -> tuple[Array, Array]:
    """Real and imaginary parts."""
    return np.real(array), np.imag(array)


def constant(attribute: DenseIntOrFPElementsAttr) -> Array:
    """The elements of a constant; one that stands for all is repeated."""
    kind = tensor_type(attribute.type)
    element, shape = element_of(kind.element_type), kind.get_shape()
    raw = np.frombuffer(attribute.data.data, np.uint8)
    # A boolean is a byte, of which any bit may be set.
    flat = raw != 0 if element == np.bool_ else raw.view(element)
    return np.broadcast_to(flat.reshape(()), shape) if flat.size == 1 else flat.reshape(shape)


# Rounding


def widened(array: Array) -> Array:
    """The same numbers in a type that numpy calculates in: `float32` for narrower floating-point types."""
    return array.astype(np.float32) if array.dtype in _NARROW else array


def doubled(array: Array) -> Array:
    """The same numbers, if they are real or complex ones, in the widest type: `float64` or `complex128`."""
    if is_float(array.dtype):
        return array.astype(np.float64)
    return array.astype(np.complex128) if is_complex(array.dtype) else array


def rounded(array: Array, element: Element) -> Array:
    """Numbers of any type to the nearest ones of a floating-point or complex type, ties to even."""
    if array.dtype == element:
        return array
    if element in _FOREIGN:
        # Those types are rounded to from `float32`; to get there must not be a rounding of its own.
        if is_integer(array.dtype):
            array = _sticky(array)
        if array.dtype == np.float64:
            array = _to_odd(array)
    return array.astype(element)


def _to_odd(array: Array) -> Array:
    """`float64` as `float32`, where numbers that do not fit have an odd last bit: a later rounding is then right."""
    nearest = np.asarray(array.astype(np.float32))
    beyond = np.abs(nearest) > np.abs(array)
    below = np.where(beyond, np.nextafter(nearest, np.float32(0)), nearest)
    return (below.view(np.uint32) | (nearest != array)).view(np.float32)


def _sticky(array: Array) -> Array:
    """Integers as `float64`; what is lost of those that do not fit shows in the last bit that is kept."""
    exact = array.astype(np.float64)
    if array.itemsize < 8:
        return exact
    kept = (array >> 16) | ((array & 0xFFFF) != 0)
    return np.where(np.abs(exact) < 2.0**40, exact, kept.astype(np.float64) * 2.0**16)
