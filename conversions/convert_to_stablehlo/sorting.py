"""Orders of elements: `sort`, `topk`, `kthvalue`, `median`, `searchsorted`, `histc`.

Sorts are stable, whether that is asked for or not. Not a number counts as greater than all numbers, as in PyTorch.
Which of equal elements `topk`, `kthvalue` and `median` name is not said there; here it is the first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import BoolAttr, i32, i64
from xdsl.ir import Attribute, SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Converter, Rejected, dimension_of
from vllm_ir.conversions.convert_to_stablehlo.dtypes import Number, element, is_complex, is_float, promoted, shape
from vllm_ir.conversions.convert_to_stablehlo.indexing import gathered
from vllm_ir.conversions.convert_to_stablehlo.places import index_type
from vllm_ir.dialects import stablehlo


def sorted_along(b: Builder, value: SSAValue, dimension: int, descending: bool) -> tuple[SSAValue, SSAValue]:
    """A value sorted along a dimension, and where each element was, as `i32` where that is enough."""
    kind = element(value)
    if is_complex(kind):
        raise Rejected("complex numbers have no order")
    sizes = shape(value)
    index = index_type([sizes[dimension]])
    places = b.iota(b.tensor(sizes, index), dimension)
    properties: dict[str, Attribute] = {"dimension": b.integer(dimension), "is_stable": BoolAttr.from_bool(True)}
    scalar, place = b.tensor((), kind), b.tensor((), index)

    def comparator(one: SSAValue, other: SSAValue, *_places: SSAValue) -> list[SSAValue]:
        return [_before(b, one, other, descending)]

    region = b.region((scalar, scalar, place, place), comparator)
    values, indices = b.emit_all(stablehlo.SortOp, (value, places), (value.type, places.type), properties, [region])
    return values, indices


def _before(b: Builder, one: SSAValue, other: SSAValue, descending: bool) -> SSAValue:
    """Whether an element is sorted before another one."""
    before = b.compare("GT" if descending else "LT", one, other)
    if not is_float(element(one)):
        return before
    one_is_nan, other_is_nan = b.compare("NE", one, one), b.compare("NE", other, other)
    greater, smaller = (one_is_nan, other_is_nan) if descending else (other_is_nan, one_is_nan)
    at_the_end = b.compare("GT", b.convert(greater, i32), b.convert(smaller, i32))
    return b.binary(stablehlo.OrOp, before, at_the_end)


def _given(b: Builder, values: SSAValue, indices: SSAValue) -> Sequence[SSAValue]:
    """The two results, in their types."""
    kinds = [kind.get_shape() for kind in b.results]
    return [b.reshape(values, kinds[0]), b.reshape(b.convert(indices, i64), kinds[1])]


def _sort(b: Builder, value: SSAValue, dim: int = -1, descending: bool = False) -> Sequence[SSAValue]:
    if not shape(value):
        return [value, b.scalar(0, i64)]
    return _given(b, *sorted_along(b, value, dimension_of(dim, len(shape(value))), descending))


def _stable_sort(
    b: Builder, value: SSAValue, *, dim: int = -1, descending: bool = False, **_: object
) -> Sequence[SSAValue]:
    return _sort(b, value, dim, descending)


def _first(b: Builder, value: SSAValue, dimension: int, count: int, start: int = 0) -> SSAValue:
    """Elements from `start` on along a dimension."""
    starts, limits = [0] * len(shape(value)), list(shape(value))
    starts[dimension], limits[dimension] = start, start + count
    return b.slice(value, starts, limits)


def _topk(b: Builder, value: SSAValue, k: int, dim: int = -1, largest: bool = True, *_: object) -> Sequence[SSAValue]:
    if not shape(value):
        return [value, b.scalar(0, i64)]
    if isinstance(k, SSAValue):
        raise Rejected("the number of elements is known only when the program runs")
    dimension = dimension_of(dim, len(shape(value)))
    pair = sorted_along(b, value, dimension, largest)
    return _given(b, *(_first(b, part, dimension, k) for part in pair))


def _kth(b: Builder, value: SSAValue, k: int, dim: int = -1, *_: object) -> Sequence[SSAValue]:
    if not shape(value):
        return [value, b.scalar(0, i64)]
    dimension = dimension_of(dim, len(shape(value)))
    pair = sorted_along(b, value, dimension, False)
    return _given(b, *(_first(b, part, dimension, 1, k - 1) for part in pair))


def _median(skips: bool) -> Converter:
    """The lower of the elements in the middle; elements that are not numbers are skipped, or are the result."""

    def convert(b: Builder, value: SSAValue, dim: int, *_: object) -> Sequence[SSAValue]:
        if not shape(value):
            return [value, b.scalar(0, i64)]
        return _given(b, *middle(b, value, dimension_of(dim, len(shape(value))), skips))

    return convert


def _median_of_all(skips: bool) -> Converter:
    def convert(b: Builder, value: SSAValue) -> SSAValue:
        count = math.prod(shape(value))
        if not count:
            return b.splat(float("nan") if is_float(element(value)) else 0, b.result)
        return b.reshape(middle(b, b.reshape(value, (count,)), 0, skips)[0], ())

    return convert


def middle(b: Builder, value: SSAValue, dimension: int, skips: bool) -> tuple[SSAValue, SSAValue]:
    """The median along a dimension, which is of size 1 then, and where it is."""
    values, indices = sorted_along(b, value, dimension, False)
    count = shape(value)[dimension]
    if not is_float(element(value)):
        place = (count - 1) // 2
        return _first(b, values, dimension, 1, place), _first(b, indices, dimension, 1, place)
    odd = b.reduce(b.convert(b.compare("NE", value, value), i32), [dimension], stablehlo.AddOp, 0)
    numbers = b.binary(stablehlo.SubtractOp, b.splat(count, b.plain(odd.type)), odd)
    if skips:
        # All elements before the first one that is not a number are numbers; without numbers, it is the first.
        less = b.binary(stablehlo.MaximumOp, b.binary(stablehlo.SubtractOp, numbers, 1), 0)
        place = b.binary(stablehlo.DivideOp, less, 2)
    else:
        place = b.select(b.compare("GT", odd, 0), numbers, (count - 1) // 2)
    sizes = list(shape(value))
    sizes[dimension] = 1
    place = b.reshape(place, sizes)
    return gathered(b, values, dimension, place), gathered(b, indices, dimension, place)


# --- places in a sorted sequence -------------------------------------------------------------------------------------


def _searched(b: Builder, ordered: SSAValue, values: SSAValue, right: bool) -> SSAValue:
    """How many elements of each sorted sequence, the last dimension, are before each value."""
    kind = promoted([ordered, values])
    sizes, length = shape(values), shape(ordered)[-1]
    whole = (*sizes, length)
    lead = range(len(shape(ordered)) - 1)
    sequences = b.broadcast_in(b.convert(ordered, kind), whole, [*lead, len(sizes)])
    wanted = b.broadcast_in(b.convert(values, kind), whole, range(len(sizes)))
    # Not `sequence < value`: a value that is not a number is behind all others.
    behind = b.compare("GT" if right else "GE", sequences, wanted)
    before = b.convert(b.unary(stablehlo.NotOp, behind), i32)
    counts = b.reduce(before, [len(sizes)], stablehlo.AddOp, 0)
    return b.reshape(b.convert(counts, b.result.element_type), b.result.get_shape())


def _search(
    b: Builder,
    sorted_sequence: SSAValue,
    wanted: SSAValue | Number,
    *,
    right: bool = False,
    side: str | None = None,
    sorter: SSAValue | None = None,
    **_: object,
) -> SSAValue:
    ordered = sorted_sequence
    if sorter is not None:
        ordered = gathered(b, ordered, len(shape(ordered)) - 1, sorter)
    return _searched(b, ordered, _wanted(b, wanted, ordered), right or side == "right")


def _bucketize(
    b: Builder, wanted: SSAValue | Number, boundaries: SSAValue, *, right: bool = False, **_: object
) -> SSAValue:
    return _searched(b, boundaries, _wanted(b, wanted, boundaries), right)


def _wanted(b: Builder, value: SSAValue | Number, ordered: SSAValue) -> SSAValue:
    return value if isinstance(value, SSAValue) else b.scalar(value, promoted([ordered, value]))


def _histogram(b: Builder, value: SSAValue, bins: int = 100, low: Number = 0, high: Number = 0) -> SSAValue:
    """How many elements are in each of so many equal intervals; the last one includes its end."""
    kind = element(value)
    if low == high:
        raise Rejected(f"its range is that of the elements (min and max are {low}); give min and max")
    count = math.prod(shape(value))
    flat = b.reshape(value, (count,))
    inside = b.binary(stablehlo.AndOp, b.compare("GE", flat, low), b.compare("LE", flat, high))
    place = b.binary(stablehlo.DivideOp, b.binary(stablehlo.SubtractOp, flat, low), high.real - low.real)
    place = b.convert(b.binary(stablehlo.MultiplyOp, place, bins), i32)
    place = b.select(inside, b.binary(stablehlo.MinimumOp, place, bins - 1), -1)
    whole = (count, bins)
    found = b.compare("EQ", b.broadcast_in(place, whole, [0]), b.iota(b.tensor(whole, i32), 1))
    return b.convert(b.reduce(b.convert(found, i32), [0], stablehlo.AddOp, 0), kind)


CONVERSIONS: Mapping[str, Converter] = {
    "aten.histc.default": _histogram,
    "aten.sort.default": _sort,
    "aten.sort.stable": _stable_sort,
    "aten.topk.default": _topk,
    "aten.kthvalue.default": _kth,
    "aten.median.dim": _median(False),
    "aten.nanmedian.dim": _median(True),
    "aten.median.default": _median_of_all(False),
    "aten.nanmedian.default": _median_of_all(True),
    "aten.searchsorted.Tensor": _search,
    "aten.searchsorted.Scalar": _search,
    "aten.bucketize.Tensor": _bucketize,
    "aten.bucketize.Scalar": _bucketize,
}
"""Converters of this family."""
