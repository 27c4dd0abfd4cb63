"""Operations that move elements: to other shapes and places, repeated or left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.ir import Operation

from vllm_ir.backends.interpreter.stablehlo.casts import converted
from vllm_ir.backends.interpreter.stablehlo.frame import Evaluator, Frame
from vllm_ir.backends.interpreter.stablehlo.values import Array, constant, result_element, result_type
from vllm_ir.dialects import stablehlo as hlo


def _constant(_frame: Frame, op: hlo.ConstantOp, _values: Sequence[Array]) -> Array:
    return constant(op.value)


def _iota(_frame: Frame, op: hlo.IotaOp, _values: Sequence[Array]) -> Array:
    shape, dimension = result_type(op).get_shape(), op.iota_dimension.value.data
    numbers = converted(np.arange(shape[dimension]), result_element(op))
    sizes = [size if axis == dimension else 1 for axis, size in enumerate(shape)]
    return np.broadcast_to(numbers.reshape(sizes), shape)


def _broadcast_in_dim(_frame: Frame, op: hlo.BroadcastInDimOp, values: Sequence[Array]) -> Array:
    return _repeated(values[0], op.broadcast_dimensions.get_values(), result_type(op).get_shape())


def _dynamic_broadcast_in_dim(_frame: Frame, op: hlo.DynamicBroadcastInDimOp, values: Sequence[Array]) -> Array:
    return _repeated(values[0], op.broadcast_dimensions.get_values(), values[1].tolist())


def _repeated(value: Array, dimensions: Sequence[int], shape: Sequence[int]) -> Array:
    """A value whose dimensions become `dimensions` of a shape, repeated along the others."""
    sizes = [1] * len(shape)
    for dimension, size in zip(dimensions, value.shape, strict=True):
        sizes[dimension] = size
    order = np.argsort(np.array(dimensions, np.int64))
    return np.broadcast_to(value.transpose(order).reshape(sizes), shape)


def _concatenate(_frame: Frame, op: hlo.ConcatenateOp, values: Sequence[Array]) -> Array:
    return np.concatenate(values, op.dimension.value.data)


def _pad(_frame: Frame, op: hlo.PadOp, values: Sequence[Array]) -> Array:
    edges = zip(op.edge_padding_low.get_values(), op.edge_padding_high.get_values(), strict=True)
    return padded(values[0], values[1], list(edges), op.interior_padding.get_values())


def padded(value: Array, filling: Array, edges: Sequence[tuple[int, int]], interior: Sequence[int]) -> Array:
    """A value with `edges` elements around it and `interior` ones between its own; negative edges take some away."""
    sizes: list[int] = []
    taken: list[Array] = []
    places: list[Array] = []
    shape: tuple[int, ...] = value.shape
    for size, (low, high), between in zip(shape, edges, interior, strict=True):
        sizes.append(low + size + max(size - 1, 0) * between + high)
        place = np.arange(low, low + size * (between + 1), between + 1)
        inside = (place >= 0) & (place < sizes[-1])
        taken.append(np.flatnonzero(inside))
        places.append(place[inside])
    result = np.full(sizes, filling, value.dtype)
    result[np.ix_(*places)] = value[np.ix_(*taken)]
    return result


def _reshape(_frame: Frame, op: hlo.ReshapeOp, values: Sequence[Array]) -> Array:
    return values[0].reshape(result_type(op).get_shape())


def _reverse(_frame: Frame, op: hlo.ReverseOp, values: Sequence[Array]) -> Array:
    return np.flip(values[0], op.dimensions.get_values())


def _slice(_frame: Frame, op: hlo.SliceOp, values: Sequence[Array]) -> Array:
    bounds = (op.start_indices.get_values(), op.limit_indices.get_values(), op.strides.get_values())
    return values[0][tuple(map(slice, *bounds))]


def _transpose(_frame: Frame, op: hlo.TransposeOp, values: Sequence[Array]) -> Array:
    return values[0].transpose(op.permutation.get_values())


def _unchanged(_frame: Frame, _op: hlo.OptimizationBarrierOp, values: Sequence[Array]) -> list[Array]:
    return list(values)


SHAPES: Mapping[type[Operation], Evaluator] = {
    hlo.BroadcastInDimOp: _broadcast_in_dim,
    hlo.ConcatenateOp: _concatenate,
    hlo.ConstantOp: _constant,
    hlo.DynamicBroadcastInDimOp: _dynamic_broadcast_in_dim,
    hlo.IotaOp: _iota,
    hlo.OptimizationBarrierOp: _unchanged,
    hlo.PadOp: _pad,
    hlo.ReshapeOp: _reshape,
    hlo.ReverseOp: _reverse,
    hlo.SliceOp: _slice,
    hlo.TransposeOp: _transpose,
}
"""What each operation gives for its operands."""
