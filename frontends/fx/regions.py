"""Which elements of a storage a window covers."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from xdsl.ir import Attribute

from vllm_ir.dialects.vllm_ir.types import BufferType, sizes_of, strides_of
from vllm_ir.frontends.fx.types import dtype_of, static_window

_EXACT_LIMIT = 1 << 22
"""Windows of up to this many elements are compared element by element when bounds do not decide."""


def _bytes_per_element(buffer: BufferType) -> int:
    dtype = dtype_of(buffer.element_type)
    return 1 if dtype is None else dtype.itemsize


def extent(buffer: BufferType) -> tuple[int, int] | None:
    """First byte of a static window and the byte behind its last; None if it is dynamic. Empty windows give (0, 0)."""
    if (window := static_window(buffer)) is None:
        return None
    sizes, strides, offset = window
    if 0 in sizes:
        return (0, 0)
    last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    width = _bytes_per_element(buffer)
    return offset * width, (last + 1) * width


def _elements(buffer: BufferType) -> np.ndarray[tuple[int], np.dtype[np.int64]] | None:
    """First bytes of all elements, if they are few enough."""
    window = static_window(buffer)
    if window is None:
        return None
    sizes, strides, offset = window
    if int(np.prod(sizes, dtype=np.float64)) > _EXACT_LIMIT:
        return None
    positions = np.array([offset], dtype=np.int64)
    for size, stride in zip(sizes, strides, strict=True):
        positions = (positions[:, None] + np.arange(size, dtype=np.int64) * stride).reshape(-1)
    return positions * _bytes_per_element(buffer)


def _is_simple(buffer: BufferType) -> bool:
    """Whether distinct indices surely are distinct elements: each stride exceeds what the smaller ones span."""
    if (window := static_window(buffer)) is None:
        return False
    span = 0
    for stride, size in sorted(zip(window[1], window[0], strict=True)):
        if size <= 1:
            continue
        if stride <= span:
            return False
        span += (size - 1) * stride
    return True


@lru_cache(maxsize=4096)
def overlaps_itself(buffer: BufferType) -> bool:
    """Whether two indices of a window are the same element. Dynamic windows overlap only where a stride is 0."""
    window = static_window(buffer)
    if window is None:
        strides = strides_of(buffer) or ()
        return any(stride == 0 and size != 1 for size, stride in zip(sizes_of(buffer), strides, strict=False))
    if 0 in window[0] or _is_simple(buffer):
        return False
    elements = _elements(buffer)
    return elements is None or len(np.unique(elements)) != len(elements)


@lru_cache(maxsize=4096)
def _may_overlap(first: BufferType, second: BufferType) -> bool:
    one, other = extent(first), extent(second)
    if one is None or other is None:
        return True
    if one[1] <= other[0] or other[1] <= one[0]:
        return False
    left, right = _elements(first), _elements(second)
    if left is None or right is None:
        return True
    widths = _bytes_per_element(first), _bytes_per_element(second)
    left = (left[:, None] + np.arange(widths[0])).reshape(-1)
    right = (right[:, None] + np.arange(widths[1])).reshape(-1)
    return bool(np.intersect1d(left, right).size)


def may_overlap(first: Attribute, second: Attribute) -> bool:
    """Whether two windows onto one storage may have a byte in common; certain for static ones of moderate size."""
    if not isinstance(first, BufferType) or not isinstance(second, BufferType):
        return False
    return _may_overlap(first, second)
