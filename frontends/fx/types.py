"""PyTorch's dtypes and tensors as types of the IR, and back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias, TypeGuard, cast

import torch
from torch import SymBool, SymFloat, SymInt, Tensor
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    ArrayAttr,
    BFloat16Type,
    ComplexType,
    Float8E4M3FNType,
    Float8E4M3FNUZType,
    Float8E5M2FNUZType,
    Float8E5M2Type,
    Float8E8M0FNUType,
    Float16Type,
    Float32Type,
    Float64Type,
    IntAttr,
    IntegerType,
    NoneAttr,
    Signedness,
    StringAttr,
    TensorType,
    f64,
    i1,
    i64,
)
from xdsl.ir import Attribute

from vllm_ir.dialects.vllm_ir.types import (
    BufferType,
    LayoutAttr,
    contiguous_strides,
    device_of,
    dimensions,
    element_type_of,
    offset_of,
    shape_of,
    strides_of,
)
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.torch_objects import expression, is_row_major

Size: TypeAlias = int | SymInt

_ELEMENT_TYPES: dict[torch.dtype, Attribute] = {
    torch.bool: i1,
    torch.int8: IntegerType(8),
    torch.int16: IntegerType(16),
    torch.int32: IntegerType(32),
    torch.int64: i64,
    torch.uint8: IntegerType(8, Signedness.UNSIGNED),
    torch.uint16: IntegerType(16, Signedness.UNSIGNED),
    torch.uint32: IntegerType(32, Signedness.UNSIGNED),
    torch.uint64: IntegerType(64, Signedness.UNSIGNED),
    torch.float16: Float16Type(),
    torch.bfloat16: BFloat16Type(),
    torch.float32: Float32Type(),
    torch.float64: Float64Type(),
    torch.float8_e4m3fn: Float8E4M3FNType(),
    torch.float8_e5m2: Float8E5M2Type(),
    torch.float8_e4m3fnuz: Float8E4M3FNUZType(),
    torch.float8_e5m2fnuz: Float8E5M2FNUZType(),
    torch.float8_e8m0fnu: Float8E8M0FNUType(),
    torch.complex32: ComplexType(Float16Type()),
    torch.complex64: ComplexType(Float32Type()),
    torch.complex128: ComplexType(Float64Type()),
}
NUMBER_TYPES: dict[type, Attribute] = {bool: i1, int: i64, float: f64}
"""Types of plain numbers."""

_NONE = NoneAttr()
_DTYPES = {element_type: dtype for dtype, element_type in _ELEMENT_TYPES.items()}


def element_type(dtype: torch.dtype) -> Attribute:
    """Element type of a dtype; `FxImportError` for dtypes that the IR does not have (quantized, sub-byte)."""
    found = _ELEMENT_TYPES.get(dtype)
    if found is None:
        known = ", ".join(str(known).removeprefix("torch.") for known in _ELEMENT_TYPES)
        raise FxImportError(f"dtype {dtype} is not supported; supported are {known}")
    return found


def dtype_of(element: Attribute) -> torch.dtype | None:
    """Dtype of an element type; None if it is not one."""
    return _DTYPES.get(element)


def known_dtype(element: Attribute) -> torch.dtype:
    """Dtype of an element type; `FxImportError` if it is not one."""
    if (found := dtype_of(element)) is None:
        raise FxImportError(f"element type {element} has no dtype")
    return found


def symbolic(value: Size) -> int | str:
    """A size as an integer, or as the text of its expression. Never guards."""
    if isinstance(value, int):
        return value
    text = str(expression(value))
    return int(text) if text.isdecimal() else text  # a symbol may have been replaced by the number that it must be


def _shape(sizes: Sequence[int | str]) -> ArrayAttr[IntAttr]:
    return ArrayAttr([IntAttr(size if isinstance(size, int) else DYNAMIC_INDEX) for size in sizes])


def _is_contiguous(sizes: Sequence[int | str], tensor: Tensor) -> bool:
    if all(isinstance(size, int) for size in sizes):
        return tensor.stride() == contiguous_strides(tensor.shape)
    return is_row_major(tensor)


def _has_symbols(tensor: Tensor) -> bool:
    return tensor._has_symbolic_sizes_strides  # pyright: ignore[reportPrivateUsage]  # there is no public form


def is_tensor(kind: Attribute) -> TypeGuard[TensorType[Attribute]]:
    """Whether a type is that of a value with elements."""
    return isinstance(kind, TensorType)


def is_shaped(kind: Attribute) -> TypeGuard[TensorType[Attribute] | BufferType]:
    """Whether a type is a tensor or a buffer."""
    return isinstance(kind, TensorType | BufferType)


class TypeCache:
    """Types of tensors, interned: building one costs ten times what finding it does."""

    def __init__(self) -> None:
        self._types: dict[tuple[object, ...], tuple[BufferType, TensorType[Attribute]]] = {}

    def buffer(self, tensor: Tensor) -> BufferType:
        """The window that `tensor` is."""
        return self._find(tensor)[0]

    def tensor(self, tensor: Tensor) -> TensorType[Attribute]:
        """Type of the value of `tensor`."""
        return self._find(tensor)[1]

    def _find(self, tensor: Tensor) -> tuple[BufferType, TensorType[Attribute]]:
        sizes: tuple[int | str, ...]
        strides: tuple[int | str, ...]
        if _has_symbols(tensor):
            # Hashing a symbolic size would install a guard.
            sizes, strides = tuple(map(symbolic, tensor.shape)), tuple(map(symbolic, tensor.stride()))
            offset = symbolic(tensor.storage_offset())
        else:
            sizes, strides, offset = tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())
        key = (tensor.dtype, sizes, strides, offset, tensor.device)
        if (found := self._types.get(key)) is None:
            steps = None if _is_contiguous(sizes, tensor) else strides
            buffer = _window(tensor.dtype, sizes, steps, offset, str(tensor.device))
            found = self._types[key] = (buffer, buffer.tensor)
        return found


@lru_cache(maxsize=4096)
def _window(
    dtype: torch.dtype,
    sizes: tuple[int | str, ...],
    strides: tuple[int | str, ...] | None,
    offset: int | str,
    device: str,
) -> BufferType:
    """The type, remembered across imports: the graphs of one program have many types in common."""
    static = all(isinstance(size, int) for size in sizes)
    return BufferType(
        _shape(sizes),
        element_type(dtype),
        _NONE if static else dimensions(sizes),
        _NONE if strides is None else dimensions(strides),
        _NONE if offset == 0 else dimensions([offset]).data[0],
        _NONE if device == "cpu" else StringAttr(device),
    )


def scalar_type(value: object) -> Attribute | None:
    """Type of a symbolic scalar; None if `value` is none."""
    if isinstance(value, SymInt):
        return i64
    if isinstance(value, SymFloat):
        return f64
    if isinstance(value, SymBool):
        return i1
    return None


def with_window(
    base: BufferType, sizes: Sequence[int], strides: Sequence[int], offset: int, element: Attribute | None = None
) -> BufferType:
    """A static window onto the storage of `base`."""
    contiguous = tuple(strides) == contiguous_strides(sizes)
    return BufferType(
        _shape(sizes),
        element or base.element_type,
        NoneAttr(),
        NoneAttr() if contiguous else dimensions(strides),
        NoneAttr() if offset == 0 else IntAttr(offset),
        base.device,
    )


def window_type(
    kind: TensorType[Attribute] | BufferType,
    sizes: tuple[int | str, ...],
    strides: tuple[int | str, ...] | None,
    offset: int | str,
) -> TensorType[Attribute] | BufferType:
    """A type like `kind` of other sizes, strides (None for row-major ones) and offset."""
    if strides is not None and all(isinstance(size, int) for size in sizes):
        strides = None if strides == contiguous_strides(cast("tuple[int, ...]", sizes)) else strides
    buffer = _window(known_dtype(kind.element_type), sizes, strides, offset, device_of(kind))
    return buffer if isinstance(kind, BufferType) else buffer.tensor


def static_window(buffer: BufferType) -> tuple[tuple[int, ...], tuple[int, ...], int] | None:
    """Sizes, strides and offset if all are known integers."""
    sizes, strides, offset = shape_of(buffer), strides_of(buffer), offset_of(buffer)
    if DYNAMIC_INDEX in sizes or strides is None or not isinstance(offset, int):
        return None
    known = tuple(stride for stride in strides if isinstance(stride, int))
    return (sizes, known, offset) if len(known) == len(strides) else None


def example(ir_type: Attribute, sizes: Sequence[Size] | None = None, strides: Sequence[Size] | None = None) -> Tensor:
    """An uninitialised tensor of a tensor or buffer type, under the current fake mode if there is one.

    `sizes` and `strides` replace those of the type where it has dynamic ones; a buffer's offset is dropped.
    """
    dtype = known_dtype(element_type_of(ir_type))
    shape = shape_of(ir_type) if sizes is None else sizes
    known = strides_of(ir_type) if strides is None else strides
    steps = known if known is not None and not any(isinstance(step, str) for step in known) else None
    if steps is None:
        return torch.empty(tuple(shape), dtype=dtype, device=device_of(ir_type))
    return torch.empty_strided(
        tuple(shape), tuple(step for step in steps if not isinstance(step, str)), dtype=dtype, device=device_of(ir_type)
    )


__all__ = [
    "NUMBER_TYPES",
    "LayoutAttr",
    "Size",
    "TypeCache",
    "dtype_of",
    "element_type",
    "example",
    "is_shaped",
    "is_tensor",
    "known_dtype",
    "scalar_type",
    "static_window",
]
