"""Tensors with a part replaced: the value form of writes through views.

A slice without steps becomes `dynamic_update_slice`, which updates only the slice where memory is shared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import i32
from xdsl.ir import SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Converter, Rejected, dimension_of
from vllm_ir.conversions.convert_to_stablehlo.dtypes import element, shape
from vllm_ir.conversions.convert_to_stablehlo.shapes import (
    Index,
    diagonal_start,
    flat_matrices,
    slice_range,
    start_of,
    starts_at,
    storage_of,
)
from vllm_ir.conversions.convert_to_stablehlo.takes import put, steps, window_indices
from vllm_ir.dialects.stablehlo import DynamicUpdateSliceOp
from vllm_ir.dialects.vllm_ir.types import contiguous_strides, strides_of


def update(b: Builder, value: SSAValue, source: SSAValue, dimension: int, start: SSAValue) -> SSAValue:
    """`value` with `source`, of the same element type and rank, in it from `start` (`tensor<i32>`) on."""
    if 0 in shape(source):
        return value
    starts = starts_at(b, len(shape(value)), dimension, start)
    return b.emit(DynamicUpdateSliceOp, (value, source, *starts), value.type)


def _slice_scatter(
    b: Builder,
    value: SSAValue,
    source: SSAValue,
    dim: int = 0,
    start: Index | None = None,
    end: Index | None = None,
    step: int = 1,
) -> SSAValue:
    sizes = shape(value)
    dimension = dimension_of(dim, len(sizes))
    size = sizes[dimension]
    source = b.convert(source, element(value))
    if isinstance(start, SSAValue):
        if step != 1:
            raise Rejected(f"a slice with step {step} starts at an index that is known only when the program runs")
        return update(b, value, source, dimension, start_of(b, start, size))
    first, last = slice_range(start, None if isinstance(end, SSAValue) else end, size)
    if isinstance(end, SSAValue):
        last = first + (shape(source)[dimension] - 1) * step + 1
    count = -(-(last - first) // step)
    window = [count if index == dimension else length for index, length in enumerate(sizes)]
    source = b.broadcast(source, window)
    if count == size:
        return source
    if step == 1 or count <= 1:
        return update(b, value, source, dimension, b.scalar(first, i32))
    return put(b, value, dimension, steps(b, count, first, step), source, True)


def _select_scatter(b: Builder, value: SSAValue, source: SSAValue, dim: int, index: Index) -> SSAValue:
    sizes = shape(value)
    dimension = dimension_of(dim, len(sizes))
    size = sizes[dimension]
    start = start_of(b, index, size) if isinstance(index, SSAValue) else b.scalar(index % size, i32)
    one = [*sizes[:dimension], 1, *sizes[dimension + 1 :]]
    slot = [*sizes[:dimension], *sizes[dimension + 1 :]]
    source = b.reshape(b.broadcast(b.convert(source, element(value)), slot), one)
    return source if size == 1 else update(b, value, source, dimension, start)


def _diagonal_scatter(
    b: Builder, value: SSAValue, source: SSAValue, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> SSAValue:
    sizes = shape(value)
    first, second = dimension_of(dim1, len(sizes)), dimension_of(dim2, len(sizes))
    start, count = diagonal_start(sizes[first], sizes[second], offset)
    if not count or 0 in sizes:
        return value
    flat, order = flat_matrices(b, value, first, second)
    rank = len(shape(source))
    moved = b.transpose(b.convert(source, element(value)), [rank - 1, *range(rank - 1)])
    written = put(b, flat, 0, steps(b, count, start, sizes[second] + 1), moved, True)
    split = b.reshape(written, [sizes[index] for index in order])
    return b.transpose(split, _inverse(order))


def _inverse(order: Sequence[int]) -> list[int]:
    return [order.index(index) for index in range(len(order))]


def _as_strided_scatter(
    b: Builder,
    value: SSAValue,
    source: SSAValue,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> SSAValue:
    sizes = shape(value)
    strides = strides_of(b.source.operands[0].type) if b.source is not None else None
    if strides is not None and tuple(strides) != contiguous_strides(sizes):
        raise Rejected(f"it writes to the memory of a tensor with strides {list(strides)}; call contiguous() before")
    if 0 in size:
        return value
    flat = storage_of(b, value)
    indices = window_indices(b, size, stride, storage_offset or 0)
    updates = b.reshape(b.convert(b.broadcast(source, size), element(value)), shape(indices))
    return b.reshape(put(b, flat, 0, indices, updates, False), sizes)


CONVERSIONS: Mapping[str, Converter] = {
    "aten.slice_scatter.default": _slice_scatter,
    "aten.select_scatter.default": _select_scatter,
    "aten.diagonal_scatter.default": _diagonal_scatter,
    "aten.as_strided_scatter.default": _as_strided_scatter,
}
"""Converters of this family."""
