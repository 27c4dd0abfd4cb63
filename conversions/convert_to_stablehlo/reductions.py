"""Reductions: sums, products, extremes, truth, variance, norms, softmax.

Sums of narrow floating-point types are computed in `f32` and rounded once. The order of additions is XLA's choice, so
that sums equal PyTorch's up to rounding only; integer and boolean reductions are exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import i1, i64
from xdsl.ir import Operation, SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Converter, Rejected, dimensions_of
from vllm_ir.conversions.convert_to_stablehlo.dtypes import (
    Number,
    computation_type,
    element,
    highest,
    is_complex,
    is_float,
    lowest,
    shape,
)
from vllm_ir.conversions.convert_to_stablehlo.elementwise import truth
from vllm_ir.dialects import stablehlo

Dims: TypeAlias = int | Sequence[int] | None
"""Dimensions as operators take them; none of them means all."""


def total(b: Builder, value: SSAValue, dimensions: Sequence[int]) -> SSAValue:
    """Sum along dimensions, which go away."""
    return b.reduce(value, dimensions, stablehlo.AddOp, 0)


def keep(b: Builder, value: SSAValue, like: SSAValue, dimensions: Sequence[int]) -> SSAValue:
    """A reduced value broadcast to the shape of what was reduced."""
    sizes = shape(like)
    if not dimensions:
        return value
    return b.broadcast_in(value, sizes, [index for index in range(len(sizes)) if index not in dimensions])


def extreme(b: Builder, value: SSAValue, dimensions: Sequence[int], largest: bool) -> SSAValue:
    """The largest or smallest element along dimensions; not a number if one is not."""
    kind = element(value)
    if is_complex(kind):
        raise Rejected("complex numbers have no order")
    if kind == i1:
        return b.reduce(value, dimensions, stablehlo.OrOp if largest else stablehlo.AndOp, not largest)
    operation = stablehlo.MaximumOp if largest else stablehlo.MinimumOp
    return b.reduce(value, dimensions, operation, lowest(kind) if largest else highest(kind))


def _finished(b: Builder, value: SSAValue) -> SSAValue:
    """A reduced value in the result's type, with the dimensions that are kept."""
    return b.reshape(b.convert(value, b.result.element_type), b.result.get_shape())


def _sum(b: Builder, value: SSAValue, dim: Dims = None, _keepdim: bool = False, **_: object) -> SSAValue:
    wide = b.convert(value, computation_type(b.result.element_type))
    return _finished(b, total(b, wide, dimensions_of(dim, len(shape(value)))))


def _sum_all(b: Builder, value: SSAValue, **_: object) -> SSAValue:
    return _sum(b, value)


def _mean(b: Builder, value: SSAValue, dim: Dims = None, _keepdim: bool = False, **_: object) -> SSAValue:
    dimensions = dimensions_of(dim, len(shape(value)))
    wide = b.convert(value, computation_type(b.result.element_type))
    count = math.prod(shape(value)[index] for index in dimensions)
    return _finished(b, b.binary(stablehlo.DivideOp, total(b, wide, dimensions), count))


def _mean_all(b: Builder, value: SSAValue, **_: object) -> SSAValue:
    return _mean(b, value)


def _product(b: Builder, value: SSAValue, dim: Dims = None, _keepdim: bool = False, **_: object) -> SSAValue:
    wide = b.convert(value, computation_type(b.result.element_type))
    return _finished(b, b.reduce(wide, dimensions_of(dim, len(shape(value))), stablehlo.MultiplyOp, 1))


def _product_all(b: Builder, value: SSAValue, **_: object) -> SSAValue:
    return _product(b, value)


def _extreme(largest: bool) -> Converter:
    def convert(b: Builder, value: SSAValue, dim: Dims = None, _keepdim: bool = False, **_: object) -> SSAValue:
        return _finished(b, extreme(b, value, dimensions_of(dim, len(shape(value))), largest))

    return convert


def _place(b: Builder, value: SSAValue, dim: int | None, largest: bool) -> tuple[SSAValue, SSAValue]:
    """The extreme along a dimension (all elements for none), and the first index that has it."""
    if dim is None:
        value, dim = b.reshape(value, (math.prod(shape(value)),)), 0
    if not shape(value):
        return value, b.scalar(0, i64)
    sizes = shape(value)
    dimension = dimensions_of(dim, len(sizes))[0]
    if not sizes[dimension]:
        raise Rejected(f"dimension {dimension} has no elements, so that there is no extreme")
    best = extreme(b, value, [dimension], largest)
    found = b.compare("EQ", value, keep(b, best, value, [dimension]))
    if is_float(element(value)):
        found = b.binary(stablehlo.OrOp, found, b.compare("NE", value, value))
    # The first index without comparing pairs: two plain reductions, which every backend has.
    indices = b.iota(b.tensor(sizes, i64), dimension)
    candidates = b.select(found, indices, sizes[dimension] - 1)
    return best, b.reduce(candidates, [dimension], stablehlo.MinimumOp, sizes[dimension] - 1)


def _extreme_with_index(largest: bool) -> Converter:
    def convert(b: Builder, value: SSAValue, dim: int, _keepdim: bool = False) -> Sequence[SSAValue]:
        pair = _place(b, value, dim, largest)
        return [b.reshape(part, kind.get_shape()) for part, kind in zip(pair, b.results, strict=True)]

    return convert


def _index_of_extreme(largest: bool) -> Converter:
    def convert(b: Builder, value: SSAValue, dim: int | None = None, _keepdim: bool = False) -> SSAValue:
        return _finished(b, _place(b, value, dim, largest)[1])

    return convert


def _truth(operation: type[Operation], neutral: bool) -> Converter:
    def convert(b: Builder, value: SSAValue, dim: Dims = None, _keepdim: bool = False) -> SSAValue:
        rank = len(shape(value))
        reduced = b.reduce(truth(b, value), dimensions_of(dim, rank), operation, neutral)
        return _finished(b, reduced)

    return convert


def moments(b: Builder, value: SSAValue, dimensions: Sequence[int], correction: Number) -> tuple[SSAValue, SSAValue]:
    """Variance and mean along dimensions, which go away; in the operand's type."""
    count = math.prod(shape(value)[index] for index in dimensions)
    mean = b.binary(stablehlo.DivideOp, total(b, value, dimensions), count)
    distance = b.binary(stablehlo.SubtractOp, value, keep(b, mean, value, dimensions))
    squares = total(b, b.binary(stablehlo.MultiplyOp, distance, distance), dimensions)
    degrees = max(0.0, count - float(correction.real))
    return b.binary(stablehlo.DivideOp, squares, degrees), mean


def _variance(
    b: Builder, value: SSAValue, dim: Dims = None, *, correction: Number | None = None, **_: object
) -> SSAValue:
    wide = b.convert(value, computation_type(b.result.element_type))
    variance = moments(b, wide, dimensions_of(dim, len(shape(value))), 1 if correction is None else correction)[0]
    return _finished(b, variance)


def _variance_mean(
    b: Builder, value: SSAValue, dim: Dims = None, *, correction: Number | None = None, **_: object
) -> Sequence[SSAValue]:
    wide = b.convert(value, computation_type(b.result.element_type))
    pair = moments(b, wide, dimensions_of(dim, len(shape(value))), 1 if correction is None else correction)
    return [
        b.reshape(b.convert(part, kind.element_type), kind.get_shape())
        for part, kind in zip(pair, b.results, strict=True)
    ]


def _norm(
    b: Builder, value: SSAValue, ord: Number = 2, dim: Dims = None, _keepdim: bool = False, **_: object
) -> SSAValue:
    """The vector norm: of order 2, 1, 0, plus or minus infinity, or any other by powers."""
    dimensions = dimensions_of(dim, len(shape(value)))
    size = b.unary(stablehlo.AbsOp, b.convert(value, computation_type(b.result.element_type)))
    if ord in (float("inf"), -float("inf")):
        return _finished(b, extreme(b, size, dimensions, ord == float("inf")))
    if ord == 0:
        return _finished(b, total(b, b.convert(b.compare("NE", size, 0), element(size)), dimensions))
    if ord == 1:
        return _finished(b, total(b, size, dimensions))
    if ord == 2:
        squares = total(b, b.binary(stablehlo.MultiplyOp, size, size), dimensions)
        return _finished(b, b.unary(stablehlo.SqrtOp, squares))
    powers = total(b, b.binary(stablehlo.PowerOp, size, ord), dimensions)
    return _finished(b, b.binary(stablehlo.PowerOp, powers, 1.0 / float(ord.real)))


def _softmax(logarithm: bool) -> Converter:
    def convert(b: Builder, value: SSAValue, dim: int, _half_to_float: bool = False, **_: object) -> SSAValue:
        kind = b.result.element_type
        wide = b.convert(value, computation_type(kind))
        dimensions = dimensions_of(dim, len(shape(value)))
        shifted = b.binary(stablehlo.SubtractOp, wide, keep(b, extreme(b, wide, dimensions, True), wide, dimensions))
        powers = b.unary(stablehlo.ExponentialOp, shifted)
        sums = total(b, powers, dimensions)
        if logarithm:
            logs = keep(b, b.unary(stablehlo.LogOp, sums), wide, dimensions)
            return b.convert(b.binary(stablehlo.SubtractOp, shifted, logs), kind)
        return b.convert(b.binary(stablehlo.DivideOp, powers, keep(b, sums, wide, dimensions)), kind)

    return convert


_ANY, _ALL = _truth(stablehlo.OrOp, False), _truth(stablehlo.AndOp, True)

CONVERSIONS: Mapping[str, Converter] = {
    "aten.sum.default": _sum_all,
    "aten.sum.dim_IntList": _sum,
    "aten.mean.default": _mean_all,
    "aten.mean.dim": _mean,
    "aten.prod.default": _product_all,
    "aten.prod.dim_int": _product,
    "aten.amax.default": _extreme(True),
    "aten.amin.default": _extreme(False),
    "aten.max.default": _extreme(True),
    "aten.min.default": _extreme(False),
    "aten.max.dim": _extreme_with_index(True),
    "aten.min.dim": _extreme_with_index(False),
    "aten.argmax.default": _index_of_extreme(True),
    "aten.argmin.default": _index_of_extreme(False),
    **{f"aten.any.{overload}": _ANY for overload in ("default", "dim", "dims")},
    **{f"aten.all.{overload}": _ALL for overload in ("default", "dim", "dims")},
    "aten.var.correction": _variance,
    "aten.var_mean.correction": _variance_mean,
    "aten.linalg_vector_norm.default": _norm,
    "aten._softmax.default": _softmax(False),
    "aten._log_softmax.default": _softmax(True),
}
"""Converters of this family."""
