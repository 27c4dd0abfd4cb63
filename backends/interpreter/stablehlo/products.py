"""Sums of products: `dot_general`, `convolution`.

Products and sums are those of `float64` (`complex128`), rounded once at the end; those of integers are taken modulo the
size of the result's type. The specification leaves the order of the sums and their rounding open.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.dialects.builtin import I64, ArrayAttr, IntegerAttr
from xdsl.ir import Operation

from vllm_ir.backends.interpreter.stablehlo.frame import Evaluator, Frame
from vllm_ir.backends.interpreter.stablehlo.shapes import padded
from vllm_ir.backends.interpreter.stablehlo.values import (
    Array,
    Element,
    doubled,
    is_complex,
    is_float,
    result_element,
    rounded,
)
from vllm_ir.dialects import stablehlo as hlo
from vllm_ir.dialects.stablehlo.convolution import Labels
from vllm_ir.dialects.stablehlo.windows import padding_pairs, window_count


def _factor(value: Array, element: Element) -> Array:
    """A factor in the type that is calculated in for results of type `element`."""
    return doubled(value) if is_float(element) or is_complex(element) else value.astype(element)


def _dot_general(_frame: Frame, op: hlo.DotGeneralOp, values: Sequence[Array]) -> Array:
    element = result_element(op)
    numbers = op.dot_dimension_numbers
    left, outer, free = _matrices(
        _factor(values[0], element), numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions
    )
    right, _, others = _matrices(
        _factor(values[1], element), numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions
    )
    product = np.matmul(left, right.swapaxes(-1, -2))
    return rounded(product.reshape((*outer, *free, *others)), element)


def _matrices(
    value: Array, batching: ArrayAttr[IntegerAttr[I64]], contracting: ArrayAttr[IntegerAttr[I64]]
) -> tuple[Array, list[int], list[int]]:
    """A batch of matrices with contracted columns; the sizes that the batch has and those that the rows have."""
    outer, inner = ([entry.value.data for entry in entries.data] for entries in (batching, contracting))
    free = [axis for axis in range(value.ndim) if axis not in outer and axis not in inner]
    sizes = [[value.shape[axis] for axis in axes] for axes in (outer, free, inner)]
    return value.transpose((*outer, *free, *inner)).reshape([*map(math.prod, sizes)]), sizes[0], sizes[1]


def _convolution(_frame: Frame, op: hlo.ConvolutionOp, values: Sequence[Array]) -> Array:
    element = result_element(op)
    numbers = op.dimension_numbers
    spatial = list(map(str, range(len(numbers.input.data) - 2)))
    at, kernel_at = _positions(numbers.input), _positions(numbers.kernel)
    value = _factor(values[0], element).transpose([at[label] for label in ("b", "f", *spatial)])
    kernel = _factor(values[1], element).transpose([kernel_at[label] for label in ("o", "i", *spatial)])
    if op.window_reversal is not None:
        turned = tuple(2 + axis for axis, reverse in enumerate(op.window_reversal.get_values()) if reverse)
        kernel = np.flip(kernel, turned)
    features, batches = op.feature_group_count.value.data, op.batch_group_count.value.data
    lefts = [part for whole in np.split(value, batches, 0) for part in np.split(whole, features, 1)]
    rights = np.split(kernel, features * batches, 0)
    wide = [_edged(op, part) for part in lefts]
    found = np.concatenate([_windows(op, *pair) for pair in zip(wide, rights, strict=True)], 1)
    order = ["b", "f", *spatial]
    return rounded(found.transpose([order.index(label.data) for label in numbers.output.data]), element)


def _positions(labels: Labels) -> dict[str, int]:
    return {label.data: position for position, label in enumerate(labels.data)}


def _entries(given: Sequence[int] | None, count: int) -> list[int]:
    return [1] * count if given is None else list(given)


def _edged(op: hlo.ConvolutionOp, value: Array) -> Array:
    """A value of `[batch, feature, ..]` with zeros around and between its elements."""
    count = value.ndim - 2
    dilation = _entries(None if op.lhs_dilation is None else op.lhs_dilation.get_values(), count)
    edges = [(0, 0), (0, 0), *padding_pairs(op.padding, count)]
    return padded(value, np.zeros((), value.dtype), edges, [0, 0, *(entry - 1 for entry in dilation)])


def _windows(op: hlo.ConvolutionOp, value: Array, kernel: Array) -> Array:
    """The sums of products of a kernel `[output feature, feature, ..]` with all windows, as `[batch, feature, ..]`."""
    count = value.ndim - 2
    strides = _entries(None if op.window_strides is None else op.window_strides.get_values(), count)
    dilation = _entries(None if op.rhs_dilation is None else op.rhs_dilation.get_values(), count)
    sizes = [
        window_count(size, window, stride, 0, 0, between)
        for size, window, stride, between in zip(value.shape[2:], kernel.shape[2:], strides, dilation, strict=True)
    ]
    total = np.zeros((kernel.shape[0], value.shape[0], *sizes), value.dtype)
    for place in np.ndindex(*kernel.shape[2:]):
        part = value[
            (
                slice(None),
                slice(None),
                *(
                    slice(index * between, index * between + (size - 1) * stride + 1 if size else 0, stride)
                    for index, between, size, stride in zip(place, dilation, sizes, strides, strict=True)
                ),
            )
        ]
        total = total + np.tensordot(kernel[(slice(None), slice(None), *place)], part, ([1], [1]))
    return total.swapaxes(0, 1)


PRODUCTS: Mapping[type[Operation], Evaluator] = {
    hlo.ConvolutionOp: _convolution,
    hlo.DotGeneralOp: _dot_general,
}
"""What each operation gives for its operands."""
