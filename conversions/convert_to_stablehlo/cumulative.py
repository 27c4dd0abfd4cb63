"""Running extremes with their places, and running logarithms of sums, by doubling distances as in `scans.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import i64
from xdsl.ir import SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Converter, dimension_of
from vllm_ir.conversions.convert_to_stablehlo.dtypes import (
    Number,
    computation_type,
    element,
    highest,
    is_float,
    lowest,
    shape,
)
from vllm_ir.conversions.convert_to_stablehlo.places import index_type
from vllm_ir.conversions.convert_to_stablehlo.shapes import padded
from vllm_ir.dialects import stablehlo


def _before(b: Builder, value: SSAValue, dimension: int, distance: int, fill: Number) -> SSAValue:
    """The element so many places before each one; `fill` where there is none."""
    low, high = [0] * len(shape(value)), [0] * len(shape(value))
    low[dimension], high[dimension] = distance, -distance
    return padded(b, value, low, high, fill)


def _distances(length: int) -> list[int]:
    return [1 << bit for bit in range(max(0, length - 1).bit_length())]


def _running_extreme(largest: bool) -> Converter:
    """The largest or smallest element so far, with its place; of equal ones, the last."""

    def convert(b: Builder, value: SSAValue, dim: int) -> Sequence[SSAValue]:
        sizes, kind = shape(value), element(value)
        if not sizes:
            return [value, b.scalar(0, i64)]
        dimension = dimension_of(dim, len(sizes))
        places = b.iota(b.tensor(sizes, index_type([sizes[dimension]])), dimension)
        fill = lowest(kind) if largest else highest(kind)
        for distance in _distances(sizes[dimension]):
            earlier = _before(b, value, dimension, distance, fill)
            stays = b.compare("GE" if largest else "LE", value, earlier)
            if is_float(kind):
                stays = b.binary(stablehlo.OrOp, stays, b.compare("NE", value, value))
            earlier_places = _before(b, places, dimension, distance, 0)
            value, places = b.select(stays, value, earlier), b.select(stays, places, earlier_places)
        return [value, b.convert(places, i64)]

    return convert


def _log_of_sum(b: Builder, one: SSAValue, other: SSAValue) -> SSAValue:
    """`log(exp(one) + exp(other))`, infinities included."""
    larger, smaller = b.binary(stablehlo.MaximumOp, one, other), b.binary(stablehlo.MinimumOp, one, other)
    difference = b.unary(stablehlo.ExponentialOp, b.binary(stablehlo.SubtractOp, smaller, larger))
    total = b.binary(stablehlo.AddOp, larger, b.unary(stablehlo.LogPlusOneOp, difference))
    # Equal infinities have no difference.
    same = b.binary(
        stablehlo.AndOp,
        b.compare("EQ", one, other),
        b.compare("EQ", b.unary(stablehlo.AbsOp, larger), float("inf")),
    )
    return b.select(same, larger, total)


def _log_cumulative_sum(b: Builder, value: SSAValue, dim: int) -> SSAValue:
    kind, sizes = b.result.element_type, shape(value)
    if not sizes:
        return b.convert(value, kind)
    wide = b.convert(value, computation_type(kind))
    dimension = dimension_of(dim, len(sizes))
    for distance in _distances(sizes[dimension]):
        wide = _log_of_sum(b, _before(b, wide, dimension, distance, -float("inf")), wide)
    return b.convert(wide, kind)


CONVERSIONS: Mapping[str, Converter] = {
    "aten.cummax.default": _running_extreme(True),
    "aten.cummin.default": _running_extreme(False),
    "aten.logcumsumexp.default": _log_cumulative_sum,
}
"""Converters of this family."""
