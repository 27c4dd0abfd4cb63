"""Writes by index tensors: `index_put`, `index_copy`, `index_add`, `scatter`, `masked_scatter` and their likes.

Writes that replace are `scatter` with a body that gives the new value, so that devices that only overwrite have them.
Which of several values for one element stays is not said, as in PyTorch. Those that accumulate combine one value after
the other, each rounded to the element type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import i32
from xdsl.ir import Operation, SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Converter, Rejected, dimension_of
from vllm_ir.conversions.convert_to_stablehlo.division import floor_quotient
from vllm_ir.conversions.convert_to_stablehlo.dtypes import Number, Operand, element, highest, is_float, lowest, shape
from vllm_ir.conversions.convert_to_stablehlo.elementwise import truth
from vllm_ir.conversions.convert_to_stablehlo.indexing import flat, is_mask, rows, with_dimension
from vllm_ir.conversions.convert_to_stablehlo.places import (
    Combine,
    Places,
    picked,
    places_along,
    places_at,
    replaced,
)
from vllm_ir.conversions.convert_to_stablehlo.scans import scan
from vllm_ir.dialects import stablehlo


def _by(operation: type[Operation]) -> Combine:
    return lambda b, old, new: b.binary(operation, old, new)


ADD, MULTIPLY = _by(stablehlo.AddOp), _by(stablehlo.MultiplyOp)
_REDUCTIONS: Mapping[str, Combine] = {
    "sum": ADD,
    "add": ADD,
    "mean": ADD,
    "prod": MULTIPLY,
    "multiply": MULTIPLY,
    "amax": _by(stablehlo.MaximumOp),
    "amin": _by(stablehlo.MinimumOp),
}


# --- index_put -------------------------------------------------------------------------------------------------------


def _index_put(
    b: Builder,
    value: SSAValue,
    indices: Sequence[SSAValue | None],
    values: SSAValue,
    accumulate: bool = False,
    *_: object,
) -> SSAValue:
    given = [index for index in indices if index is not None]
    combine = ADD if accumulate else None
    values = b.convert(values, element(value))
    if not given:
        values = b.broadcast(values, shape(value))
        return values if combine is None else combine(b, value, values)
    if any(map(is_mask, given)):
        if len(given) > 1:
            raise Rejected("a mask is an index beside another index; write with torch.where, or by one of them")
        return _mask_put(b, value, indices.index(given[0]), truth(b, given[0]), values, combine)
    return replaced(b, value, places_at(b, value, indices, True), values, combine)


def _mask_put(
    b: Builder, value: SSAValue, first: int, mask: SSAValue, values: SSAValue, combine: Combine | None
) -> SSAValue:
    """`value` with other elements where a mask of the dimensions from `first` on is true.

    `values` has one entry for all of these or one for each, along the dimension that stands for the mask's.
    """
    sizes, covered = shape(value), len(shape(mask))
    behind = len(sizes) - first - covered
    values = b.reshape(values, (1,) * (behind + 1 - len(shape(values))) + shape(values))
    axis = len(shape(values)) - 1 - behind
    if shape(values)[axis] == 1:
        lengths = shape(values)
        values = b.reshape(values, (*lengths[:axis], *(1,) * covered, *lengths[axis + 1 :]))
    else:
        indices: list[SSAValue | None] = [*[None] * axis, _counted(b, mask)]
        values = picked(b, values, places_at(b, values, indices, False))
    values = b.broadcast(values, sizes)
    new = values if combine is None else combine(b, value, values)
    return b.select(b.broadcast_in(mask, sizes, range(first, first + covered)), new, value)


def _counted(b: Builder, mask: SSAValue) -> SSAValue:
    """How many elements before each one are true, row-major; of use where it is true itself."""
    ones = b.convert(flat(b, mask), i32)
    return b.reshape(b.binary(stablehlo.SubtractOp, scan(b, ones, 0, stablehlo.AddOp, 0), 1), shape(mask))


def _masked_scatter(b: Builder, value: SSAValue, mask: SSAValue, source: SSAValue) -> SSAValue:
    sizes = b.result.get_shape()
    value, mask = b.broadcast(value, sizes), b.broadcast(mask, sizes)
    if 0 in sizes or 0 in shape(source):
        return value
    source = flat(b, b.convert(source, element(value)))
    return b.select(mask, picked(b, source, places_at(b, source, [_counted(b, mask)], False)), value)


# --- slices along one dimension --------------------------------------------------------------------------------------


def _write_rows(
    b: Builder, value: SSAValue, dim: int, index: SSAValue, source: SSAValue, combine: Combine | None
) -> SSAValue:
    whole, indices = rows(b, value, dim, index)
    source = b.convert(source, element(value))
    if not shape(value):
        source = b.reshape(source, (1,))
    elif not shape(index) and len(shape(source)) < len(shape(value)):
        dimension = dimension_of(dim, len(shape(value)))
        sizes = shape(source)
        source = b.reshape(source, (*sizes[:dimension], 1, *sizes[dimension:]))
    return b.reshape(replaced(b, whole, places_at(b, whole, indices, False), source, combine), shape(value))


def _index_copy(b: Builder, value: SSAValue, dim: int, index: SSAValue, source: SSAValue) -> SSAValue:
    return _write_rows(b, value, dim, index, source, None)


def _index_add(
    b: Builder, value: SSAValue, dim: int, index: SSAValue, source: SSAValue, *, alpha: Number = 1
) -> SSAValue:
    if alpha != 1:
        source = b.binary(stablehlo.MultiplyOp, source, alpha)
    return _write_rows(b, value, dim, index, source, ADD)


def _index_fill(b: Builder, value: SSAValue, dim: int, index: SSAValue, fill: Operand) -> SSAValue:
    whole, indices = rows(b, value, dim, index)
    filled = b.convert(fill, element(value))
    written = replaced(b, whole, places_at(b, whole, indices, True), b.reshape(filled, ()))
    return b.reshape(written, shape(value))


def _index_reduce(
    b: Builder,
    value: SSAValue,
    dim: int,
    index: SSAValue,
    source: SSAValue,
    reduce: str,
    *,
    include_self: bool = True,
) -> SSAValue:
    whole, indices = rows(b, value, dim, index)
    source = b.reshape(source, shape(source) or (1,))
    return b.reshape(
        _reduced(b, whole, places_at(b, whole, indices, False), source, reduce, include_self), shape(value)
    )


# --- elements along one dimension ------------------------------------------------------------------------------------


def _placed(b: Builder, value: SSAValue, dim: int, index: SSAValue) -> tuple[SSAValue, Places, SSAValue]:
    whole, index = with_dimension(b, value), with_dimension(b, index)
    return whole, places_along(b, whole, dimension_of(dim, len(shape(whole))), index), index


def _sources(b: Builder, source: Operand, value: SSAValue, index: SSAValue) -> SSAValue:
    """What is written for each element of an index: as much of the source as the index is large, or a number."""
    if not isinstance(source, SSAValue):
        return b.scalar(source, element(value))
    source = with_dimension(b, source)
    return b.slice(source, [0] * len(shape(source)), shape(index)) if shape(source) != shape(index) else source


def _scatter(
    b: Builder, value: SSAValue, dim: int, index: SSAValue, source: Operand, *, reduce: str | None = None
) -> SSAValue:
    if 0 in shape(index):  # then it may have other dimensions than the value
        return value
    whole, places, index = _placed(b, value, dim, index)
    combine = None if reduce is None else _REDUCTIONS[reduce]
    return b.reshape(replaced(b, whole, places, _sources(b, source, value, index), combine), shape(value))


def _scatter_add(b: Builder, value: SSAValue, dim: int, index: SSAValue, source: SSAValue) -> SSAValue:
    return _scatter(b, value, dim, index, source, reduce="sum")


def _scatter_reduce(
    b: Builder,
    value: SSAValue,
    dim: int,
    index: SSAValue,
    source: SSAValue,
    reduce: str,
    *,
    include_self: bool = True,
) -> SSAValue:
    if 0 in shape(index):
        return value
    whole, places, index = _placed(b, value, dim, index)
    return b.reshape(_reduced(b, whole, places, _sources(b, source, value, index), reduce, include_self), shape(value))


def _reduced(
    b: Builder, value: SSAValue, places: Places, source: SSAValue, reduce: str, include_self: bool
) -> SSAValue:
    """`value` with slices reduced into it; without those that are there already unless `include_self`."""
    kind = element(value)
    start = value
    if not include_self:
        start = replaced(b, value, places, b.scalar(_neutral(reduce, value), kind))
    result = replaced(b, start, places, source, _REDUCTIONS[reduce])
    if reduce != "mean":
        return result
    counts = b.splat(1, b.plain(value.type))
    if not include_self:
        counts = replaced(b, counts, places, b.scalar(0, kind))
    counts = replaced(b, counts, places, b.scalar(1, kind), ADD)
    counts = b.binary(stablehlo.MaximumOp, counts, 1)
    return b.binary(stablehlo.DivideOp, result, counts) if is_float(kind) else floor_quotient(b, result, counts)


def _neutral(reduce: str, value: SSAValue) -> Number:
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    return lowest(element(value)) if reduce == "amax" else highest(element(value))


def _put(b: Builder, value: SSAValue, index: SSAValue, source: SSAValue, accumulate: bool = False) -> SSAValue:
    whole = flat(b, value)
    source = b.reshape(source, shape(index))
    written = replaced(b, whole, places_at(b, whole, [index], True), source, ADD if accumulate else None)
    return b.reshape(written, shape(value))


CONVERSIONS: Mapping[str, Converter] = {
    "aten.index_put.default": _index_put,
    "aten._unsafe_index_put.default": _index_put,
    "aten.masked_scatter.default": _masked_scatter,
    "aten.index_copy.default": _index_copy,
    "aten.index_add.default": _index_add,
    "aten.index_fill.int_Scalar": _index_fill,
    "aten.index_fill.int_Tensor": _index_fill,
    "aten.index_reduce.default": _index_reduce,
    "aten.scatter.src": _scatter,
    "aten.scatter.value": _scatter,
    "aten.scatter.reduce": _scatter,
    "aten.scatter.value_reduce": _scatter,
    "aten.scatter_add.default": _scatter_add,
    "aten.scatter_reduce.two": _scatter_reduce,
    "aten.put.default": _put,
}
"""Converters of this family."""
