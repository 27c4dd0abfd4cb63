"""Elements along one dimension, picked and replaced by index.

Indices are `tensor<k x i32>` and in bounds.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import I64, ArrayAttr, BoolAttr, IntegerAttr, i32, i64
from xdsl.ir import Attribute, SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder
from vllm_ir.conversions.convert_to_stablehlo.dtypes import element, shape
from vllm_ir.dialects import stablehlo
from vllm_ir.dialects.stablehlo import GatherDimensionNumbers, ScatterDimensionNumbers


def dims(values: Sequence[int]) -> ArrayAttr[IntegerAttr[I64]]:
    """Dimensions as part of an attribute."""
    return ArrayAttr([IntegerAttr(value, i64) for value in values])


def flag(value: bool) -> Attribute:
    """A boolean attribute."""
    return BoolAttr.from_bool(value)


def take(b: Builder, value: SSAValue, dimension: int, indices: SSAValue, in_order: bool = False) -> SSAValue:
    """The slices of `value` along a dimension at these indices; the dimension becomes as long as there are indices."""
    sizes = list(shape(value))
    numbers = GatherDimensionNumbers(
        dims([index for index in range(len(sizes)) if index != dimension]),
        dims([dimension]),
        dims([]),
        dims([]),
        dims([dimension]),
        IntegerAttr(1, i64),
    )
    window = [1 if index == dimension else size for index, size in enumerate(sizes)]
    sizes[dimension] = shape(indices)[0]
    properties: dict[str, Attribute] = {
        "dimension_numbers": numbers,
        "slice_sizes": b.integers(window),
        "indices_are_sorted": flag(in_order),
    }
    return b.emit(stablehlo.GatherOp, (value, indices), b.tensor(sizes, element(value)), properties)


def put(b: Builder, value: SSAValue, dimension: int, indices: SSAValue, source: SSAValue, unique: bool) -> SSAValue:
    """`value` with the slices along a dimension at these indices replaced by those of `source`, in its order."""
    rank = len(shape(value))
    numbers = ScatterDimensionNumbers(
        dims([index for index in range(rank) if index != dimension]),
        dims([dimension]),
        dims([]),
        dims([]),
        dims([dimension]),
        IntegerAttr(1, i64),
    )
    scalar = b.tensor((), element(value))
    properties: dict[str, Attribute] = {
        "scatter_dimension_numbers": numbers,
        "indices_are_sorted": flag(False),
        "unique_indices": flag(unique),
    }
    region = b.region((scalar, scalar), _replaced)
    return b.emit(stablehlo.ScatterOp, (value, indices, source), value.type, properties, [region])


def _replaced(_old: SSAValue, new: SSAValue) -> Sequence[SSAValue]:
    return [new]


def steps(b: Builder, count: int, start: int, step: int) -> SSAValue:
    """Indices `start + i * step`."""
    value = b.iota(b.tensor((count,), i32))
    if step != 1:
        value = b.binary(stablehlo.MultiplyOp, value, step)
    return b.binary(stablehlo.AddOp, value, start) if start else value


def window_indices(b: Builder, sizes: Sequence[int], strides: Sequence[int], offset: int) -> SSAValue:
    """Positions of a window's elements in a storage, row-major."""
    kind = b.tensor(sizes or (1,), i32)
    total: SSAValue | None = None
    for dimension, stride in enumerate(strides):
        if stride == 0 or sizes[dimension] == 1:
            continue
        part = b.iota(kind, dimension)
        part = part if stride == 1 else b.binary(stablehlo.MultiplyOp, part, stride)
        total = part if total is None else b.binary(stablehlo.AddOp, total, part)
    if total is None:
        total = b.splat(offset, kind)
    elif offset:
        total = b.binary(stablehlo.AddOp, total, offset)
    count = 1
    for size in sizes:
        count *= size
    return b.reshape(total, (count,))
