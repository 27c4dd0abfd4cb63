"""Pooling: the extremes and averages of windows.

Windows are `reduce_window`. The places of extremes, where a program asks for them, come from as many strided slices as
a window has elements, since devices reduce windows of one tensor only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from xdsl.dialects.builtin import i32, i64
from xdsl.ir import Attribute, Operation, SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Converter
from vllm_ir.conversions.convert_to_stablehlo.convolution import padding_attribute, spread
from vllm_ir.conversions.convert_to_stablehlo.dtypes import (
    Number,
    computation_type,
    element,
    is_float,
    lowest,
    numpy_dtype,
    shape,
)
from vllm_ir.conversions.convert_to_stablehlo.places import places_along, replaced
from vllm_ir.conversions.convert_to_stablehlo.scatter import ADD
from vllm_ir.conversions.convert_to_stablehlo.shapes import cut, padded
from vllm_ir.dialects import stablehlo


@dataclass(frozen=True)
class Windows:
    """Windows over the last dimensions of a tensor, of which each list has an entry."""

    kernel: Sequence[int]
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    counts: Sequence[int]
    """How many windows there are."""

    def margins(self, sizes: Sequence[int]) -> list[tuple[int, int]]:
        """Elements that the windows need before and behind each of these dimensions."""
        return [
            (pad, max(0, (count - 1) * step + (window - 1) * gap + 1 - size - pad))
            for window, step, pad, gap, count, size in zip(
                self.kernel, self.stride, self.padding, self.dilation, self.counts, sizes, strict=True
            )
        ]


def _windows(
    b: Builder,
    spatial: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1,),
) -> Windows:
    window = spread(kernel, spatial)
    steps = spread(stride, spatial) if stride else window
    counts = b.result.get_shape()[len(b.result.get_shape()) - spatial :]
    return Windows(window, steps, spread(padding, spatial), spread(dilation, spatial), counts)


def _reduced(b: Builder, value: SSAValue, windows: Windows, operation: type[Operation], start: Number) -> SSAValue:
    sizes, kind, spatial = shape(value), element(value), len(windows.kernel)
    lead = len(sizes) - spatial
    result = b.tensor((*sizes[:lead], *windows.counts), kind)
    if 0 in result.get_shape():
        return b.splat(0, result)
    ones = [1] * lead
    properties: dict[str, Attribute] = {
        "window_dimensions": b.integers([*ones, *windows.kernel]),
        "window_strides": b.integers([*ones, *windows.stride]),
        "window_dilations": b.integers([*ones, *windows.dilation]),
        "padding": padding_attribute([(0, 0)] * lead + windows.margins(sizes[lead:])),
    }
    return b.emit(
        stablehlo.ReduceWindowOp, (value, b.scalar(start, kind)), result, properties, [b.reducer(operation, kind)]
    )


# --- extremes --------------------------------------------------------------------------------------------------------


def _max_pool(spatial: int) -> Converter:
    def convert(
        b: Builder,
        value: SSAValue,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        *_: object,
    ) -> Sequence[SSAValue]:
        windows = _windows(b, spatial, kernel, stride, padding, dilation)
        if b.source is not None and b.source.results[1].first_use is not None:
            best, places = _places(b, value, windows)
            return best, b.convert(places, i64)
        best = _reduced(b, value, windows, stablehlo.MaximumOp, lowest(element(value)))
        return best, b.splat(0, b.results[1])  # nobody asks for the places

    return convert


def _places(b: Builder, value: SSAValue, windows: Windows) -> tuple[SSAValue, SSAValue]:
    """The largest element of each window, and its number among all of the windowed dimensions."""
    sizes, spatial = shape(value), len(windows.kernel)
    lead = len(sizes) - spatial
    numbers = _numbers(b, sizes, spatial)
    low, high = [0] * len(sizes), [0] * len(sizes)
    for index, (before, behind) in enumerate(windows.margins(sizes[lead:])):
        low[lead + index], high[lead + index] = before, behind
    value = padded(b, value, low, high, lowest(element(value)))
    numbers = padded(b, numbers, low, high, -1)
    best: tuple[SSAValue, SSAValue] | None = None
    for offsets in itertools.product(*map(range, windows.kernel)):
        pair = (_offset(b, value, windows, offsets), _offset(b, numbers, windows, offsets))
        best = pair if best is None else _larger(b, best, pair)
    if best is None:
        raise ValueError("a window has no elements")
    return best


def _numbers(b: Builder, sizes: Sequence[int], spatial: int) -> SSAValue:
    """Each element's number among those of the last dimensions."""
    flat = b.iota(b.tensor((math.prod(sizes[-spatial:]),), i32))
    return b.broadcast(b.reshape(flat, sizes[-spatial:]), sizes)


def _offset(b: Builder, value: SSAValue, windows: Windows, offsets: Sequence[int]) -> SSAValue:
    """The element of each window that is so many places from its beginning."""
    sizes, spatial = shape(value), len(offsets)
    lead = len(sizes) - spatial
    starts, limits, steps = [0] * lead, list(sizes[:lead]), [1] * lead
    for offset, gap, step, count in zip(offsets, windows.dilation, windows.stride, windows.counts, strict=True):
        starts.append(offset * gap)
        limits.append(offset * gap + (count - 1) * step + 1)
        steps.append(step)
    return b.slice(value, starts, limits, steps)


def _larger(b: Builder, one: tuple[SSAValue, SSAValue], other: tuple[SSAValue, SSAValue]) -> tuple[SSAValue, SSAValue]:
    """The pair with the larger value: the first of equal ones, the last that is no number, never one of the padding."""
    wins = b.compare("GT", other[0], one[0])
    if is_float(element(one[0])):
        wins = b.binary(stablehlo.OrOp, wins, b.compare("NE", other[0], other[0]))
    unset = b.binary(stablehlo.AndOp, b.compare("LT", one[1], 0), b.compare("GE", other[1], 0))
    wins = b.binary(stablehlo.OrOp, wins, unset)
    return b.select(wins, other[0], one[0]), b.select(wins, other[1], one[1])


def _max_pool_backward(spatial: int) -> Converter:
    """The gradient of each window goes to its largest element."""

    def convert(b: Builder, gradient: SSAValue, value: SSAValue, *arguments: object) -> SSAValue:
        places = cast(SSAValue, arguments[-1])
        sizes = shape(value)
        lead = sizes[: len(sizes) - spatial]
        zeros = b.splat(0, b.tensor((*lead, math.prod(sizes[-spatial:])), element(gradient)))
        count = math.prod(shape(gradient)[len(lead) :])
        index = b.reshape(places, (*lead, count))
        at = places_along(b, zeros, len(lead), index)
        return b.reshape(replaced(b, zeros, at, b.reshape(gradient, (*lead, count)), ADD), sizes)

    return convert


# --- averages --------------------------------------------------------------------------------------------------------


def _avg_pool(spatial: int) -> Converter:
    def convert(
        b: Builder,
        value: SSAValue,
        kernel: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        _ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> SSAValue:
        windows = _windows(b, spatial, kernel, stride, padding)
        kind = b.result.element_type
        sums = _reduced(b, b.convert(value, computation_type(kind)), windows, stablehlo.AddOp, 0)
        if divisor_override is not None:
            return b.convert(b.binary(stablehlo.DivideOp, sums, divisor_override), kind)
        counts = _counts(shape(value)[-spatial:], windows, count_include_pad)
        return b.convert(b.binary(stablehlo.DivideOp, sums, _divisor(b, counts, sums)), kind)

    return convert


def _counts(
    sizes: Sequence[int], windows: Windows, padding_counts: bool
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """How many elements each window has, those of the padding that the program states included or not."""
    total = np.ones([1] * len(sizes), np.int64)
    for dimension, size in enumerate(sizes):
        pad = windows.padding[dimension]
        first = np.arange(windows.counts[dimension], dtype=np.int64) * windows.stride[dimension] - pad
        last = np.minimum(first + windows.kernel[dimension], size + pad)
        if not padding_counts:
            first, last = np.maximum(first, 0), np.minimum(last, size)
        own = [1] * len(sizes)
        own[dimension] = -1
        total = total * (last - first).reshape(own)
    return total


def _divisor(b: Builder, counts: np.ndarray[tuple[int, ...], np.dtype[np.int64]], like: SSAValue) -> SSAValue | Number:
    """Counts of windows as a number if all are equal, else as a tensor."""
    if not counts.size or (counts == counts.flat[0]).all():
        return int(counts.flat[0]) if counts.size else 1
    kind = element(like)
    data = counts.astype(numpy_dtype(kind)).tobytes()
    return b.broadcast(b.constant(data, b.tensor(counts.shape, kind)), shape(like))


# --- a given number of windows ---------------------------------------------------------------------------------------


def _parts(size: int, count: int) -> list[tuple[int, int]]:
    """Where the windows are that divide a dimension into so many of nearly equal size."""
    return [(index * size // count, -(-(index + 1) * size // count)) for index in range(count)]


def _adaptive_avg_pool(spatial: int) -> Converter:
    def convert(b: Builder, value: SSAValue, _output_size: Sequence[int]) -> SSAValue:
        kind = b.result.element_type
        if 0 in b.result.get_shape():
            return b.splat(0, b.result)
        wide = b.convert(value, computation_type(kind))
        counts = np.ones([1] * spatial, np.int64)
        for index, count in enumerate(b.result.get_shape()[-spatial:]):
            dimension = len(shape(wide)) - spatial + index
            parts = _parts(shape(wide)[dimension], count)
            wide = _joined(b, [_sum(b, wide, dimension, part) for part in parts], dimension)
            own = [1] * spatial
            own[index] = -1
            counts = counts * np.array([last - first for first, last in parts]).reshape(own)
        return b.convert(b.binary(stablehlo.DivideOp, wide, _divisor(b, counts, wide)), kind)

    return convert


def _sum(b: Builder, value: SSAValue, dimension: int, part: tuple[int, int]) -> SSAValue:
    return b.reduce(cut(b, value, dimension, *part), [dimension], stablehlo.AddOp, 0)


def _joined(b: Builder, parts: Sequence[SSAValue], dimension: int) -> SSAValue:
    """Values beside each other along a new dimension."""
    sizes = list(shape(parts[0]))
    sizes.insert(dimension, 1)
    return b.concatenate([b.reshape(part, sizes) for part in parts], dimension)


def _adaptive_max_pool(spatial: int) -> Converter:
    def convert(b: Builder, value: SSAValue, _output_size: Sequence[int]) -> Sequence[SSAValue]:
        if 0 in b.result.get_shape():
            return [b.splat(0, kind) for kind in b.results]
        sizes = shape(value)
        pair = (value, _numbers(b, sizes, spatial))
        # The last dimension first: of equal elements, the first one in the order of memory stays.
        for dimension in reversed(range(len(sizes) - spatial, len(sizes))):
            parts = _parts(sizes[dimension], b.result.get_shape()[dimension])
            found = [_largest(b, pair, dimension, part) for part in parts]
            pair = (
                b.concatenate([one for one, _ in found], dimension),
                b.concatenate([n for _, n in found], dimension),
            )
        return pair[0], b.convert(pair[1], i64)

    return convert


def _largest(
    b: Builder, pair: tuple[SSAValue, SSAValue], dimension: int, part: tuple[int, int]
) -> tuple[SSAValue, SSAValue]:
    """The largest of some elements along a dimension, which is of size 1 then, with its number."""
    entries = [(cut(b, pair[0], dimension, at, at + 1), cut(b, pair[1], dimension, at, at + 1)) for at in range(*part)]
    best = entries[0]
    for entry in entries[1:]:
        best = _larger(b, best, entry)
    return best


def _unpool(spatial: int) -> Converter:
    """Elements put where they were before pooling; zeros elsewhere."""

    def convert(b: Builder, value: SSAValue, indices: SSAValue, *_: object) -> SSAValue:
        sizes = b.result.get_shape()
        lead = sizes[: len(sizes) - spatial]
        zeros = b.splat(0, b.tensor((*lead, math.prod(sizes[-spatial:])), element(value)))
        count = math.prod(shape(value)[len(lead) :])
        at = places_along(b, zeros, len(lead), b.reshape(indices, (*lead, count)))
        return b.reshape(replaced(b, zeros, at, b.reshape(value, (*lead, count))), sizes)

    return convert


CONVERSIONS: Mapping[str, Converter] = {
    "aten.max_pool2d_with_indices.default": _max_pool(2),
    "aten.max_pool3d_with_indices.default": _max_pool(3),
    "aten.max_pool2d_with_indices_backward.default": _max_pool_backward(2),
    "aten.avg_pool1d.default": _avg_pool(1),
    "aten.avg_pool2d.default": _avg_pool(2),
    "aten.avg_pool3d.default": _avg_pool(3),
    "aten._adaptive_avg_pool2d.default": _adaptive_avg_pool(2),
    "aten._adaptive_avg_pool3d.default": _adaptive_avg_pool(3),
    "aten.adaptive_max_pool2d.default": _adaptive_max_pool(2),
    "aten.adaptive_max_pool3d.default": _adaptive_max_pool(3),
    "aten.max_unpool2d.default": _unpool(2),
    "aten.max_unpool3d.default": _unpool(3),
}
"""Converters of this family."""
