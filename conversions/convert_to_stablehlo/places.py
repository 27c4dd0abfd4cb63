"""Slices of a tensor that index tensors point at: reading them, and writing them.

An operator that looks elements up says where they are (`Places`); `picked` and `replaced` do the rest. A slice is one
element along the dimensions that are indexed, and all elements along the others, so that whole rows are read and
written as rows. Where there is one slice only, it is a `dynamic_slice` or a `dynamic_update_slice`.

Indices are `i32` where the sizes allow it. One that is out of range, which PyTorch refuses when it runs, is moved into
the range for reads and for writes of one slice; other writes leave it out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, i32, i64
from xdsl.ir import Attribute, SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder
from vllm_ir.conversions.convert_to_stablehlo.dtypes import element, is_unsigned, shape
from vllm_ir.conversions.convert_to_stablehlo.takes import dims, flag
from vllm_ir.dialects import stablehlo

Combine: TypeAlias = Callable[[Builder, SSAValue, SSAValue], SSAValue]
"""What a write makes of the old and the new elements; both arguments and the result are of one type."""


@dataclass(frozen=True)
class Places:
    """Slices of a tensor, as many as `common` has elements.

    `parts` are their positions along each of `dimensions`, all of shape `common` and of one integer type. In the tensor
    of the slices, the dimensions `windows` are those of the tensor that are not indexed; the others are `common`.
    """

    parts: Sequence[SSAValue]
    dimensions: Sequence[int]
    windows: Sequence[int]
    common: Sequence[int]

    def window(self, sizes: Sequence[int]) -> list[int]:
        """The sizes of one slice, in the order of the tensor's dimensions."""
        return [1 if index in self.dimensions else size for index, size in enumerate(sizes)]

    def picked_sizes(self, sizes: Sequence[int]) -> list[int]:
        """The shape of the tensor of all slices of a tensor of these sizes."""
        whole = iter([size for index, size in enumerate(sizes) if index not in self.dimensions])
        common = iter(self.common)
        rank = len(self.windows) + len(self.common)
        return [next(whole) if index in self.windows else next(common) for index in range(rank)]

    @property
    def single(self) -> bool:
        """Whether there is exactly one slice."""
        return math.prod(self.common) == 1


def index_type(sizes: Sequence[int]) -> Attribute:
    """The integer type of indices into dimensions of these sizes."""
    return i32 if all(size < 2**31 for size in sizes) else i64


def position(b: Builder, index: SSAValue, size: int, kind: Attribute, wraps: bool) -> SSAValue:
    """An index as a position from the front; negative ones count from the end if it `wraps`."""
    wraps = wraps and not is_unsigned(element(index)) and not _counts(index)
    index = b.convert(index, kind)
    if not wraps:
        return index
    return b.select(b.compare("LT", index, 0), b.binary(stablehlo.AddOp, index, size), index)


def _counts(index: SSAValue) -> bool:
    """Whether an index is known to count from 0 up."""
    while isinstance(index.owner, stablehlo.ConvertOp | stablehlo.ReshapeOp | stablehlo.BroadcastInDimOp):
        index = index.owner.operands[0]
    return isinstance(index.owner, stablehlo.IotaOp)


def _ascends(part: SSAValue) -> bool:
    """Whether positions are known to be `0, 1, 2, ..`."""
    if len(shape(part)) != 1:
        return False
    while isinstance(part.owner, stablehlo.ConvertOp):
        part = part.owner.operands[0]
    return isinstance(part.owner, stablehlo.IotaOp)


def places_at(b: Builder, value: SSAValue, indices: Sequence[SSAValue | None], wraps: bool) -> Places:
    """Where index tensors point that are broadcast to one shape; None takes all of a dimension.

    In the tensor of slices, that shape takes the place of the indexed dimensions if these are neighbours, else it is in
    front.
    """
    sizes = shape(value)
    given = {dimension: index for dimension, index in enumerate(indices) if index is not None}
    common = np.broadcast_shapes(*map(shape, given.values()))
    kind = index_type([sizes[dimension] for dimension in given])
    parts = [b.broadcast(position(b, index, sizes[at], kind, wraps), common) for at, index in given.items()]
    dimensions = tuple(given)
    neighbours = dimensions == tuple(range(dimensions[0], dimensions[-1] + 1))
    before = dimensions[0] if neighbours else 0
    whole = len(sizes) - len(dimensions)
    windows = (*range(before), *range(before + len(common), whole + len(common)))
    return Places(parts, dimensions, windows, common)


def places_along(b: Builder, value: SSAValue, dimension: int, index: SSAValue) -> Places:
    """For each element of `index`, the position that it says along a dimension, and its own along the others.

    Dimensions along which an index is only repeated, and which it has completely, are read and written as a whole.
    """
    sizes, lengths = shape(value), shape(index)
    windows = [at for at in _repeated(index) if at != dimension and lengths[at] == sizes[at]]
    dimensions = [at for at in range(len(sizes)) if at not in windows]
    kind = index_type([sizes[at] for at in dimensions])
    limits = [1 if at in windows else length for at, length in enumerate(lengths)]
    common = [lengths[at] for at in dimensions]
    own = b.reshape(b.slice(index, [0] * len(limits), limits), common)
    parts = [
        b.convert(own, kind) if at == dimension else b.iota(b.tensor(common, kind), place)
        for place, at in enumerate(dimensions)
    ]
    return Places(parts, dimensions, windows, common)


def _repeated(value: SSAValue) -> list[int]:
    """Dimensions along which a value is known to be the same."""
    owner = value.owner
    if not isinstance(owner, stablehlo.BroadcastInDimOp):
        return []
    kept = list(owner.broadcast_dimensions.get_values())
    own = shape(owner.operands[0])
    return [at for at in range(len(shape(value))) if at not in kept or own[kept.index(at)] == 1]


def _vectors(b: Builder, places: Places) -> SSAValue:
    """Positions along all dimensions, joined in a last dimension if there is more than one."""
    if len(places.parts) == 1:
        return places.parts[0]
    column = (*places.common, 1)
    return b.concatenate([b.reshape(part, column) for part in places.parts], len(places.common))


def _starts(b: Builder, sizes: Sequence[int], places: Places) -> list[SSAValue]:
    """Start of the only slice in each dimension."""
    known = dict(zip(places.dimensions, places.parts, strict=True))
    zero = b.scalar(0, element(places.parts[0]))
    return [b.reshape(known[at], ()) if at in known else zero for at in range(len(sizes))]


def _slice_at(b: Builder, value: SSAValue, places: Places, starts: Sequence[SSAValue]) -> SSAValue:
    window = places.window(shape(value))
    properties = {"slice_sizes": b.integers(window)}
    return b.emit(stablehlo.DynamicSliceOp, (value, *starts), b.tensor(window, element(value)), properties)


def picked(b: Builder, value: SSAValue, places: Places) -> SSAValue:
    """The slices, as one tensor."""
    sizes = shape(value)
    kind = b.tensor(places.picked_sizes(sizes), element(value))
    if 0 in kind.get_shape():
        return b.splat(0, kind)
    if not places.parts:
        return value
    if places.single:
        return b.reshape(_slice_at(b, value, places, _starts(b, sizes, places)), kind.get_shape())
    numbers = stablehlo.GatherDimensionNumbers(
        dims(places.windows),
        dims(places.dimensions),
        dims([]),
        dims([]),
        dims(places.dimensions),
        IntegerAttr(len(places.common), i64),
    )
    properties: dict[str, Attribute] = {
        "dimension_numbers": numbers,
        "slice_sizes": b.integers(places.window(sizes)),
        "indices_are_sorted": flag(len(places.parts) == 1 and _ascends(places.parts[0])),
    }
    return b.emit(stablehlo.GatherOp, (value, _vectors(b, places)), kind, properties)


def replaced(b: Builder, value: SSAValue, places: Places, slices: SSAValue, combine: Combine | None = None) -> SSAValue:
    """`value` with other slices: `slices`, broadcast to all of them, or what `combine` makes of old and new.

    Which of several slices for one place stays is not said, as in PyTorch; combined are all of them.
    """
    sizes = shape(value)
    slices = b.broadcast(b.convert(slices, element(value)), places.picked_sizes(sizes))
    if 0 in shape(slices):
        return value
    if places.single:
        starts = _starts(b, sizes, places)
        new = b.reshape(slices, places.window(sizes))
        if combine is not None:
            new = combine(b, _slice_at(b, value, places, starts), new)
        return b.emit(stablehlo.DynamicUpdateSliceOp, (value, new, *starts), value.type)
    numbers = stablehlo.ScatterDimensionNumbers(
        dims(places.windows),
        dims(places.dimensions),
        dims([]),
        dims([]),
        dims(places.dimensions),
        IntegerAttr(len(places.common), i64),
    )
    ascending = len(places.parts) == 1 and _ascends(places.parts[0])
    properties: dict[str, Attribute] = {
        "scatter_dimension_numbers": numbers,
        "indices_are_sorted": flag(ascending),
        "unique_indices": flag(ascending),
    }
    scalar = b.tensor((), element(value))

    def body(old: SSAValue, new: SSAValue) -> list[SSAValue]:
        return [new if combine is None else combine(b, old, new)]

    region = b.region((scalar, scalar), body)
    return b.emit(stablehlo.ScatterOp, (value, _vectors(b, places), slices), value.type, properties, [region])
