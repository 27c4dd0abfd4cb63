"""Operations whose places depend on operands: slices and updates of them, `gather`, `scatter`.

Where a slice or what is gathered would reach out of the operand, its start is moved into it. A `scatter` leaves out
the elements that are outside, each by itself; XLA leaves out windows that do not fit as a whole, and so does this file
where the program is run in that way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import I64, ArrayAttr, IntegerAttr
from xdsl.ir import Operation, Region

from vllm_ir.backends.interpreter.stablehlo.frame import Evaluator, Frame
from vllm_ir.backends.interpreter.stablehlo.values import Array
from vllm_ir.dialects import stablehlo as hlo


def _clamped(starts: Sequence[Array], sizes: Sequence[int], lengths: Sequence[int]) -> tuple[slice, ...]:
    places: list[slice] = []
    for start, size, length in zip(starts, sizes, lengths, strict=True):
        first = min(max(int(start), 0), length - size)
        places.append(slice(first, first + size))
    return tuple(places)


def _dynamic_slice(_frame: Frame, op: hlo.DynamicSliceOp, values: Sequence[Array]) -> Array:
    operand, *starts = values
    return operand[_clamped(starts, op.slice_sizes.get_values(), operand.shape)]


def _dynamic_update_slice(_frame: Frame, _op: hlo.DynamicUpdateSliceOp, values: Sequence[Array]) -> Array:
    operand, update, *starts = values
    result = operand.copy()
    result[_clamped(starts, update.shape, operand.shape)] = update
    return result


# Gather and scatter


@dataclass(frozen=True)
class _Axis:
    """Where the windows of a gather or scatter are along one dimension of the operand.

    Arrays have the rank of the tensor of all windows: the result of a gather, the updates of a scatter.
    """

    start: Array
    """Where each window starts."""
    offset: Array
    """How far an element is behind the start of its window."""
    window: int
    """Size of a window."""
    length: int
    """Size of the operand."""

    @property
    def clamped(self) -> Array:
        """Where each element is; windows that reach out of the operand are moved into it."""
        return np.clip(self.start, 0, self.length - self.window) + self.offset

    def inside(self, *, whole: bool) -> Array:
        """Whether each element is in the operand, or all of its window."""
        if whole:
            return (self.start >= 0) & (self.start + self.window <= self.length)
        place = self.start + self.offset
        return (place >= 0) & (place < self.length)


def _dimensions(entries: ArrayAttr[IntegerAttr[I64]]) -> list[int]:
    return [entry.value.data for entry in entries.data]


def _vectors(indices: Array, vector: int) -> Array:
    """Index vectors, along the last dimension."""
    found = indices[..., None] if vector == indices.ndim else np.moveaxis(indices, vector, -1)
    return (
        np.minimum(found, np.iinfo(np.int64).max).astype(np.int64)
        if found.dtype == np.uint64
        else (found.astype(np.int64))
    )


def _axes(
    lengths: Sequence[int],
    vectors: Array,
    mapped: Sequence[int],
    batching: Mapping[int, int],
    windows: Mapping[int, tuple[int, int]],
    rank: int,
) -> list[_Axis]:
    """Where the windows are along each dimension of the operand.

    Args:
        lengths: sizes of the operand.
        vectors: index vectors.
        mapped: the dimension of the operand that each element of a vector is for.
        batching: for dimensions of the operand that windows are counted along, the dimension of `vectors`.
        windows: for dimensions of the operand that windows have, that of the tensor of windows, and the window's size.
        rank: of the tensor of windows.
    """
    taken = {dimension for dimension, _ in windows.values()}
    counts: Iterator[int] = iter(vectors.shape[:-1])
    outer = [1 if dimension in taken else next(counts) for dimension in range(rank)]
    found: list[_Axis] = []
    for axis, length in enumerate(lengths):
        start = np.zeros(vectors.shape[:-1], np.int64)
        if axis in mapped:
            start = start + vectors[..., mapped.index(axis)]
        if axis in batching:
            start = start + np.indices(vectors.shape[:-1])[batching[axis]]
        dimension, size = windows.get(axis, (None, 1))
        sizes = [size if dimension == other else 1 for other in range(rank)]
        found.append(_Axis(start.reshape(outer), np.arange(size).reshape(sizes), size, length))
    return found


def _gather(_frame: Frame, op: hlo.GatherOp, values: Sequence[Array]) -> Array:
    operand, indices = values
    numbers, sizes = op.dimension_numbers, op.slice_sizes.get_values()
    vector = numbers.index_vector_dim.value.data
    batching = _batching(numbers.operand_batching_dims, numbers.start_indices_batching_dims, vector)
    missing = {*_dimensions(numbers.collapsed_slice_dims), *batching}
    kept = [axis for axis in range(operand.ndim) if axis not in missing]
    windows = {axis: (at, sizes[axis]) for axis, at in zip(kept, sorted(_dimensions(numbers.offset_dims)), strict=True)}
    vectors = _vectors(indices, vector)
    rank = vectors.ndim - 1 + len(kept)
    axes = _axes(operand.shape, vectors, _dimensions(numbers.start_index_map), batching, windows, rank)
    # A window may also be empty along a dimension that the result does not have.
    shape = np.broadcast_shapes(*(axis.clamped.shape for axis in axes)) if axes else vectors.shape[:-1]
    return np.broadcast_to(operand[tuple(axis.clamped for axis in axes)], shape)


def _batching(
    operand: ArrayAttr[IntegerAttr[I64]], indices: ArrayAttr[IntegerAttr[I64]], vector: int
) -> dict[int, int]:
    """Dimensions of the operand that windows are counted along, and those of index vectors that count them."""
    pairs = zip(_dimensions(operand), _dimensions(indices), strict=True)
    return {axis: dimension - (dimension > vector) for axis, dimension in pairs}


def _scatter(frame: Frame, op: hlo.ScatterOp, values: Sequence[Array]) -> list[Array]:
    count = len(op.inputs)
    inputs, indices, updates = values[:count], values[count], values[count + 1 :]
    numbers = op.scatter_dimension_numbers
    vector = numbers.index_vector_dim.value.data
    batching = _batching(numbers.input_batching_dims, numbers.scatter_indices_batching_dims, vector)
    missing = {*_dimensions(numbers.inserted_window_dims), *batching}
    kept = [axis for axis in range(inputs[0].ndim) if axis not in missing]
    shape = updates[0].shape
    windows = {
        axis: (at, shape[at]) for axis, at in zip(kept, sorted(_dimensions(numbers.update_window_dims)), strict=True)
    }
    mapped = _dimensions(numbers.scatter_dims_to_operand_dims)
    axes = _axes(inputs[0].shape, _vectors(indices, vector), mapped, batching, windows, len(shape))
    place, inside = np.zeros(shape, np.int64), np.ones(shape, np.bool_)
    for axis in axes:
        place = place * axis.length + axis.start + axis.offset
        inside = inside & axis.inside(whole=frame.program.whole_windows)
    return updated(frame, op.update_computation, inputs, place, inside, updates)


def updated(
    frame: Frame, body: Region, targets: Sequence[Array], place: Array, inside: Array, updates: Sequence[Array]
) -> list[Array]:
    """Targets with updates combined into them by `body`, in row-major order of the updates.

    Args:
        frame: runs `body`, which takes old elements and updates.
        body: a region of scalars.
        targets: arrays of one shape.
        place: where in the flat targets each update goes; of any value where it is not `inside`.
        inside: which updates count.
        updates: for each target.
    """
    flat = [target.flatten() for target in targets]
    places = place[inside]
    given = [update[inside] for update in updates]
    # The first updates of all places in one step, then the second ones, and so on.
    order = np.argsort(places, kind="stable")
    position = np.arange(places.size)
    new = np.append(True, np.diff(places[order]) != 0)[: places.size]
    turn = position - np.maximum.accumulate(np.where(new, position, 0))
    for number in range(turn.max() + 1 if turn.size else 0):
        chosen = order[turn == number]
        at = places[chosen]
        old = [target[at] for target in flat]
        results = frame.apply(body, [*old, *(update[chosen] for update in given)])
        for target, result in zip(flat, results, strict=True):
            target[at] = result
    return [target.reshape(original.shape) for target, original in zip(flat, targets, strict=True)]


INDEXING: Mapping[type[Operation], Evaluator] = {
    hlo.DynamicSliceOp: _dynamic_slice,
    hlo.DynamicUpdateSliceOp: _dynamic_update_slice,
    hlo.GatherOp: _gather,
    hlo.ScatterOp: _scatter,
}
"""What each operation gives for its operands."""
