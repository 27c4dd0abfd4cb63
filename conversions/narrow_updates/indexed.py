"""Gather and scatter on a window: the same on the whole tensor, with the place of the window joined to the indices.

Indices count from the start of the window. Where the window ends before the tensor does, an index out of range must not
reach what lies beside it: a gather takes the nearest slice, a scatter leaves the update out, as on the window alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from xdsl.dialects.builtin import I64, ArrayAttr, IntegerAttr, i32, i64
from xdsl.ir import Attribute, SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder
from vllm_ir.conversions.convert_to_stablehlo.dtypes import element, numpy_dtype, shape
from vllm_ir.conversions.convert_to_stablehlo.takes import dims, flag
from vllm_ir.conversions.narrow_updates.boxes import BoxDimension, split_sizes
from vllm_ir.conversions.narrow_updates.windows import Start, Window, row_major
from vllm_ir.dialects.stablehlo import (
    AddOp,
    AndOp,
    BroadcastInDimOp,
    ClampOp,
    ConcatenateOp,
    ConstantOp,
    DivideOp,
    GatherDimensionNumbers,
    GatherOp,
    RemainderOp,
    ReshapeOp,
    ScatterDimensionNumbers,
    ScatterOp,
)

Reader: TypeAlias = Callable[[SSAValue], SSAValue]
"""Gives the new value for one of the program."""
StartReader: TypeAlias = Callable[[Sequence[Start], int, Attribute], SSAValue]
"""Gives the sum of starts and a number, as a scalar of an integer type."""


@dataclass
class Plan:
    """Dimension numbers of a gather or scatter on the tensor in the shape `sizes`."""

    sizes: list[int] = field(default_factory=list[int])
    windows: list[int] = field(default_factory=list[int])
    """Dimensions of the tensor that the slices have, in their order."""
    order: list[int] = field(default_factory=list[int])
    """For each of these, which of the slices' dimensions it was."""
    collapsed: list[int] = field(default_factory=list[int])
    indexed: list[int] = field(default_factory=list[int])
    """Dimension of the tensor for each index."""
    firsts: list[int] = field(default_factory=list[int])
    """What is added to each index."""
    lengths: list[int] = field(default_factory=list[int])
    """Length of the window along each of `indexed`."""
    extra: list[BoxDimension] = field(default_factory=list[BoxDimension])
    extra_dimensions: list[int] = field(default_factory=list[int])
    splits: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """Dimensions that are indexed one by one and several of the tensor itself: the sizes of these."""

    @property
    def shape(self) -> list[int]:
        """The shape that the tensor must have."""
        return [part for at, size in enumerate(self.sizes) for part in self.splits.get(at, [size])]

    def parts(self, at: int) -> list[int]:
        """The dimensions of `shape` that a dimension of `sizes` is."""
        first = sum(len(self.splits.get(before, [0])) for before in range(at))
        return list(range(first, first + len(self.splits.get(at, [0]))))

    def all_parts(self, dimensions: Sequence[int]) -> list[int]:
        """The dimensions of `shape` for several of `sizes`."""
        return [part for at in dimensions for part in self.parts(at)]


def _plan(
    window: Window,
    box: Sequence[BoxDimension] | None,
    strides: Sequence[int],
    collapsed: Sequence[int],
    indexed: Sequence[int],
) -> Plan | None:
    if box is None:
        return None
    box = list(box)
    found = {entry.dimension: at for at, entry in enumerate(box) if entry.dimension is not None}
    # Dimensions of size 1 have no place in the tensor, and get one behind all others.
    for dimension, size in enumerate(window.sizes):
        if size == 1:
            found[dimension] = len(box)
            box.append(BoxDimension(1, 0, 0, 1, (), dimension))
    plan = Plan([entry.size for entry in box])
    kept = [dimension for dimension in range(len(window.sizes)) if dimension not in collapsed]
    for at, entry in enumerate(box):
        if entry.dimension is None or entry.dimension in collapsed:
            plan.collapsed.append(at)
        else:
            plan.windows.append(at)
            plan.order.append(kept.index(entry.dimension))
        if entry.dimension in indexed:
            if entry.starts:
                return None
        elif entry.starts or entry.first or entry.dimension is None:
            # Also an index that is always 0: not every compiler takes scatters that index only later dimensions.
            plan.extra.append(entry)
            plan.extra_dimensions.append(at)
    plan.indexed = [found[dimension] for dimension in indexed]
    plan.firsts = [box[at].first for at in plan.indexed]
    plan.lengths = [box[at].length for at in plan.indexed]
    for at in set(plan.indexed).intersection(plan.collapsed):
        if len(sizes := split_sizes(box[at], strides)) > 1:
            plan.splits[at] = sizes
    return plan


def plan_for(
    op: GatherOp | ScatterOp, window: Window, box: Sequence[BoxDimension] | None, root: Sequence[int]
) -> Plan | None:
    """How a gather or scatter on a window, which is this box, can be one on the tensor; None if it cannot.

    Indices into dimensions that the window joins are taken apart, so that the tensor keeps its shape, `root`.
    """
    if isinstance(op, GatherOp):
        numbers = op.dimension_numbers
        batched, indices = numbers.operand_batching_dims, op.start_indices
        collapsed, indexed = numbers.collapsed_slice_dims, numbers.start_index_map
    else:
        numbers = op.scatter_dimension_numbers
        batched, indices = numbers.input_batching_dims, op.scatter_indices
        collapsed, indexed = numbers.inserted_window_dims, numbers.scatter_dims_to_operand_dims
    if batched.data or element(indices) not in (i32, i64):
        return None
    return _plan(window, box, row_major(root), _values(collapsed), _values(indexed))


def reached(op: GatherOp | ScatterOp, window: Window) -> Window:
    """The part of a window that a gather or scatter reaches, as far as its indices are known."""
    if isinstance(op, GatherOp):
        numbers, indices, vector = op.dimension_numbers.start_index_map, op.start_indices, op.dimension_numbers
        lengths = list(op.slice_sizes.get_values())
    else:
        numbers, indices = op.scatter_dimension_numbers.scatter_dims_to_operand_dims, op.scatter_indices
        vector, lengths = op.scatter_dimension_numbers, _update_lengths(op)
    starts, sizes = [0] * len(window.sizes), list(window.sizes)
    known = _known_components(indices, _integer(vector.index_vector_dim))
    for dimension, value in zip(_values(numbers), known, strict=False):
        if value is not None and 0 <= value <= sizes[dimension] - lengths[dimension]:
            starts[dimension], sizes[dimension] = value, lengths[dimension]
    return window.narrowed(starts, sizes)


def _update_lengths(op: ScatterOp) -> list[int]:
    """What one update covers along each dimension of the operand."""
    numbers, sizes = op.scatter_dimension_numbers, shape(op.updates[0])
    given = iter([sizes[at] for at in _values(numbers.update_window_dims)])
    inserted = [*_values(numbers.inserted_window_dims), *_values(numbers.input_batching_dims)]
    return [1 if at in inserted else next(given) for at in range(len(shape(op.inputs[0])))]


def _known_components(indices: SSAValue, vector: int) -> list[int | None]:
    """For each component of index vectors, the number that it is everywhere, if that is known."""
    sizes, op = shape(indices), indices.owner
    if vector == len(sizes):
        return [_known_number(indices)]
    if not isinstance(op, ConcatenateOp) or op.dimension.value.data != vector:
        return [_known_number(indices)] * sizes[vector]
    return [number for value in op.inputs for number in [_known_number(value)] * shape(value)[vector]]


def _known_number(value: SSAValue) -> int | None:
    op = value.owner
    while isinstance(op, ReshapeOp | BroadcastInDimOp):
        op = op.operands[0].owner
    if not isinstance(op, ConstantOp) or not op.value.is_splat():
        return None
    first = next(iter(op.value.get_values()))
    return first if isinstance(first, int) else None


def scattered(b: Builder, op: ScatterOp, plan: Plan, whole: SSAValue, new: Reader, start: StartReader) -> SSAValue:
    """The scatter on the tensor in the shape `plan.shape`."""
    numbers = op.scatter_dimension_numbers
    updates = new(op.updates[0])
    window_dims = _values(numbers.update_window_dims)
    updates = b.transpose(updates, _moved(len(shape(updates)), window_dims, plan.order))
    # What one update covers along each indexed dimension.
    lengths = dict(zip(plan.windows, (shape(updates)[at] for at in window_dims), strict=True))
    limits = [length - lengths.get(at, 1) for at, length in zip(plan.indexed, plan.lengths, strict=True)]
    indices, vector = _as_vectors(b, new(op.scatter_indices), _integer(numbers.index_vector_dim))
    guarded = _is_guarded(plan)
    if guarded:
        indices = _left_out(b, indices, vector, plan, limits)
    indices = _with_extra(b, _split(b, indices, vector, plan), vector, plan, start)
    joined = ScatterDimensionNumbers(
        dims(window_dims),
        dims(plan.all_parts(plan.collapsed)),
        dims([]),
        dims([]),
        dims(plan.all_parts([*plan.extra_dimensions, *plan.indexed])),
        IntegerAttr(vector, i64),
    )
    properties = dict(op.properties)
    properties["scatter_dimension_numbers"] = joined
    if guarded or plan.splits:
        properties["indices_are_sorted"] = flag(False)
    return b.emit(ScatterOp, (whole, indices, updates), whole.type, properties, [op.update_computation.clone()])


def gathered(b: Builder, op: GatherOp, plan: Plan, whole: SSAValue, new: Reader, start: StartReader) -> SSAValue:
    """The gather from the tensor in the shape `plan.shape`."""
    numbers = op.dimension_numbers
    given = op.slice_sizes.get_values()
    lengths = [1] * len(plan.sizes)
    kept = [size for at, size in enumerate(given) if at not in _values(numbers.collapsed_slice_dims)]
    for at, source in zip(plan.windows, plan.order, strict=True):
        lengths[at] = kept[source]
    indices, vector = _as_vectors(b, new(op.start_indices), _integer(numbers.index_vector_dim))
    if _is_guarded(plan) or plan.splits:
        limits = [length - lengths[at] for at, length in zip(plan.indexed, plan.lengths, strict=True)]
        low = _along(b, [0] * len(limits), indices, vector)
        clamped = b.emit(ClampOp, (low, indices, _along(b, limits, indices, vector)), indices.type)
        indices = _moved_by(b, clamped, vector, plan.firsts)
    indices = _with_extra(b, _split(b, indices, vector, plan), vector, plan, start)
    offsets = _values(numbers.offset_dims)
    sizes = list(shape(op.result))
    for at, source in zip(offsets, plan.order, strict=True):
        sizes[at] = kept[source]
    joined = GatherDimensionNumbers(
        dims(offsets),
        dims(plan.all_parts(plan.collapsed)),
        dims([]),
        dims([]),
        dims(plan.all_parts([*plan.extra_dimensions, *plan.indexed])),
        IntegerAttr(vector, i64),
    )
    properties = dict(op.properties)
    properties["dimension_numbers"] = joined
    properties["slice_sizes"] = b.integers(
        [length for at, length in enumerate(lengths) for _ in plan.splits.get(at, [0])]
    )
    result = b.emit(GatherOp, (whole, indices), b.tensor(sizes, element(whole)), properties)
    moved = _moved(len(sizes), offsets, plan.order)
    return b.transpose(result, [moved.index(at) for at in range(len(moved))])


def _moved(rank: int, places: Sequence[int], order: Sequence[int]) -> list[int]:
    """A permutation that puts, at the i-th of `places`, the one that is there as number `order[i]`."""
    permutation = list(range(rank))
    for at, source in zip(places, order, strict=True):
        permutation[at] = places[source]
    return permutation


def _is_guarded(plan: Plan) -> bool:
    """Whether an index out of the window's range may be in the tensor's."""
    return any(
        first or length != plan.sizes[at]
        for at, first, length in zip(plan.indexed, plan.firsts, plan.lengths, strict=True)
    )


def _as_vectors(b: Builder, indices: SSAValue, vector: int) -> tuple[SSAValue, int]:
    """Indices with a dimension for their components, which is not written if there is one."""
    sizes = shape(indices)
    return (b.reshape(indices, (*sizes, 1)), vector) if vector == len(sizes) else (indices, vector)


def _along(b: Builder, values: Sequence[int], like: SSAValue, vector: int) -> SSAValue:
    """Numbers, one for each component, in the shape of the indices."""
    kind = element(like)
    data = np.array(values, numpy_dtype(kind)).tobytes()
    if len(set(values)) == 1:
        return b.splat(values[0], b.tensor(shape(like), kind))
    return b.broadcast_in(b.constant(data, b.tensor((len(values),), kind)), shape(like), [vector])


def _left_out(b: Builder, indices: SSAValue, vector: int, plan: Plan, limits: Sequence[int]) -> SSAValue:
    """Indices into the tensor; those that are out of the window's range are out of the tensor's."""
    low = b.compare("GE", indices, _along(b, [0] * len(limits), indices, vector))
    valid = b.binary(AndOp, low, b.compare("LE", indices, _along(b, limits, indices, vector)))
    if len(limits) > 1:
        every = b.reduce(valid, [vector], AndOp, True)
        kept = [at for at in range(len(shape(indices))) if at != vector]
        valid = b.broadcast_in(every, shape(indices), kept)
    moved = _moved_by(b, indices, vector, plan.firsts)
    return b.select(valid, moved, _along(b, [plan.sizes[at] for at in plan.indexed], indices, vector))


def _moved_by(b: Builder, indices: SSAValue, vector: int, firsts: Sequence[int]) -> SSAValue:
    return b.binary(AddOp, indices, _along(b, firsts, indices, vector)) if any(firsts) else indices


def _split(b: Builder, indices: SSAValue, vector: int, plan: Plan) -> SSAValue:
    """Indices into the tensor's own dimensions; one that is out of range stays so in one of them."""
    if not plan.splits:
        return indices
    sizes, columns = shape(indices), list[SSAValue]()
    for place, at in enumerate(plan.indexed):
        lows = [place if at == vector else 0 for at in range(len(sizes))]
        column = b.slice(indices, lows, [place + 1 if at == vector else size for at, size in enumerate(sizes)])
        parts = plan.splits.get(at, [plan.sizes[at]])
        for part, size in enumerate(parts):
            value, step = column, math.prod(parts[part + 1 :])
            value = b.binary(DivideOp, value, step) if step != 1 else value
            columns.append(b.binary(RemainderOp, value, size) if part else value)
    return b.concatenate(columns, vector)


def _with_extra(b: Builder, indices: SSAValue, vector: int, plan: Plan, start: StartReader) -> SSAValue:
    """Indices with the place of the window in front of their components."""
    if not plan.extra:
        return indices
    sizes = [1 if at == vector else size for at, size in enumerate(shape(indices))]
    kind = b.tensor(sizes, element(indices))
    columns = [
        b.broadcast_in(start(entry.starts, entry.first, kind.element_type), sizes, [])
        if entry.starts
        else b.splat(entry.first, kind)
        for entry in plan.extra
    ]
    return b.concatenate([*columns, indices], vector)


def _values(dimensions: ArrayAttr[IntegerAttr[I64]]) -> list[int]:
    return [entry.value.data for entry in dimensions.data]


def _integer(value: IntegerAttr[I64]) -> int:
    return value.value.data
