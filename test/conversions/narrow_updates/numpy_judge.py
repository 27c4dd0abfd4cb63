"""StableHLO modules of data movement, run by numpy: thousands of small programs in the time of one compilation."""

from __future__ import annotations

import itertools

import numpy as np

from vllm_ir.dialects import stablehlo as hlo


def _dimensions(entries):
    return [entry.value.data for entry in entries.data]


def _clamped(starts, sizes, lengths):
    return tuple(
        slice(first := min(max(int(start), 0), length - size), first + size)
        for start, size, length in zip(starts, sizes, lengths, strict=True)
    )


def _vectors(indices, vector):
    """Index vectors by the place of their slice."""
    if vector == indices.ndim:
        indices = indices[..., None]
    moved = np.moveaxis(indices, vector, -1)
    return {place: moved[place] for place in np.ndindex(*moved.shape[:-1])}


def _place(windows, rank, batch, window):
    """Where an element of a slice is in the tensor of all slices."""
    batch, window = iter(batch), iter(window)
    return tuple(next(window) if at in windows else next(batch) for at in range(rank))


def _gather(op, operand, indices):
    numbers, sizes = op.dimension_numbers, op.slice_sizes.get_values()
    collapsed, offsets = _dimensions(numbers.collapsed_slice_dims), _dimensions(numbers.offset_dims)
    mapped = _dimensions(numbers.start_index_map)
    result = np.empty(op.result.type.get_shape(), operand.dtype)
    for batch, vector in _vectors(indices, numbers.index_vector_dim.value.data).items():
        starts = [0] * operand.ndim
        for at, value in zip(mapped, vector, strict=True):
            starts[at] = value
        piece = np.squeeze(operand[_clamped(starts, sizes, operand.shape)], tuple(collapsed))
        for window in np.ndindex(*piece.shape):
            result[_place(offsets, result.ndim, batch, window)] = piece[window]
    return result


def _scatter(op, operand, indices, updates):
    numbers = op.scatter_dimension_numbers
    inserted, windows = _dimensions(numbers.inserted_window_dims), _dimensions(numbers.update_window_dims)
    mapped, result = _dimensions(numbers.scatter_dims_to_operand_dims), operand.copy()
    adds = any(isinstance(inner, hlo.AddOp) for inner in op.update_computation.block.ops)
    lengths = [updates.shape[at] for at in windows]
    for batch, vector in _vectors(indices, numbers.index_vector_dim.value.data).items():
        starts = [0] * operand.ndim
        for at, value in zip(mapped, vector, strict=True):
            starts[at] = int(value)
        kept = iter(lengths)
        sizes = [1 if at in inserted else next(kept) for at in range(operand.ndim)]
        # XLA leaves out an update as a whole.
        if any(s < 0 or s + n > length for s, n, length in zip(starts, sizes, operand.shape, strict=True)):
            continue
        for window in itertools.product(*map(range, lengths)):
            offsets = iter(window)
            place = tuple(s if at in inserted else s + next(offsets) for at, s in enumerate(starts))
            new = updates[_place(windows, updates.ndim, batch, window)]
            result[place] = result[place] + new if adds else new
    return result


def _constant(op):
    kind = op.output.type
    flat = np.frombuffer(op.value.data.data, np.bool_ if str(kind.element_type) == "i1" else np.int32)
    return (
        np.broadcast_to(flat if flat.size > 1 else flat[0], kind.get_shape())
        if flat.size == 1
        else flat.reshape(kind.get_shape())
    )


def _broadcast(op, value):
    sizes = [1] * len(op.result.type.get_shape())
    for at, length in zip(op.broadcast_dimensions.get_values(), value.shape, strict=True):
        sizes[at] = length
    return np.broadcast_to(value.reshape(sizes), op.result.type.get_shape())


def _compare(op, left, right):
    direction = op.comparison_direction.data.value
    return left >= right if direction == "GE" else left <= right


def _updated(_, operand, update, *starts):
    result = operand.copy()
    result[_clamped(starts, update.shape, operand.shape)] = update
    return result


_RUN = {
    hlo.AddOp: lambda _, left, right: left + right,
    hlo.AndOp: lambda _, left, right: left & right,
    hlo.BroadcastInDimOp: _broadcast,
    hlo.ClampOp: lambda _, low, value, high: np.minimum(np.maximum(value, low), high),
    hlo.CompareOp: _compare,
    hlo.ConcatenateOp: lambda op, *values: np.concatenate(values, op.dimension.value.data),
    hlo.ConstantOp: _constant,
    hlo.DivideOp: lambda _, left, right: np.trunc(left / right).astype(left.dtype),
    hlo.DynamicSliceOp: lambda op, v, *s: v[_clamped(s, op.slice_sizes.get_values(), v.shape)],
    hlo.DynamicUpdateSliceOp: _updated,
    hlo.GatherOp: _gather,
    hlo.ReduceOp: lambda op, value, _: np.all(value, tuple(op.dimensions.get_values())),
    hlo.RemainderOp: lambda _, left, right: np.fmod(left, right),
    hlo.ReshapeOp: lambda op, value: value.reshape(op.result.type.get_shape()),
    hlo.ScatterOp: _scatter,
    hlo.SelectOp: lambda _, which, yes, no: np.where(which, yes, no),
    hlo.SliceOp: lambda op, v: v[
        tuple(map(slice, op.start_indices.get_values(), op.limit_indices.get_values(), op.strides.get_values()))
    ],
    hlo.TransposeOp: lambda op, value: value.transpose(op.permutation.get_values()),
}


def interpret(module, arrays):
    """The results of a module's function."""
    (function,) = module.body.block.ops
    block = function.body.block
    values = dict(zip(block.args, arrays, strict=True))
    for op in block.ops:
        operands = [values[operand] for operand in op.operands]
        if op is block.last_op:
            return operands
        values[op.results[0]] = _RUN[type(op)](op, *operands)
    raise ValueError("the function returns nothing")
