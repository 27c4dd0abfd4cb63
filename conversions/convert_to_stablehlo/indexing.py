"""Lookups by index tensors: `index`, `embedding`, `index_select`, `gather`, `take`.

A tensor of booleans as an index has as many results as it has true elements, which StableHLO cannot state: such calls
are refused, also because their result has a dynamic shape.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import i1
from xdsl.ir import SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Converter, Rejected, dimension_of
from vllm_ir.conversions.convert_to_stablehlo.dtypes import element, shape, ui8
from vllm_ir.conversions.convert_to_stablehlo.places import picked, places_along, places_at

DYNAMIC = (
    "the size of its result depends on the elements of its operand, and StableHLO is made for static sizes; keep all "
    "of them and select with torch.where"
)
"""Why operators such as `nonzero` are refused."""


def is_mask(index: SSAValue) -> bool:
    """Whether an index is a mask: booleans, or bytes that PyTorch takes for such."""
    return element(index) in (i1, ui8)


def _index(b: Builder, value: SSAValue, indices: Sequence[SSAValue | None]) -> SSAValue:
    given = [index for index in indices if index is not None]
    if any(map(is_mask, given)):
        raise Rejected(f"a mask is an index: {DYNAMIC}")
    return picked(b, value, places_at(b, value, indices, True)) if given else value


def _embedding(b: Builder, weight: SSAValue, indices: SSAValue, *_: object, **_keywords: object) -> SSAValue:
    return picked(b, weight, places_at(b, weight, [indices], False))


def rows(b: Builder, value: SSAValue, dim: int, index: SSAValue) -> tuple[SSAValue, list[SSAValue | None]]:
    """A value with at least one dimension, and an index with exactly one, as indices of `places_at`."""
    if not shape(value):
        value = b.reshape(value, (1,))
    along: list[SSAValue | None] = [None] * dimension_of(dim, len(shape(value)))
    return value, [*along, b.reshape(index, (math.prod(shape(index)),))]


def _index_select(b: Builder, value: SSAValue, dim: int, index: SSAValue) -> SSAValue:
    value, indices = rows(b, value, dim, index)
    return b.reshape(picked(b, value, places_at(b, value, indices, False)), b.result.get_shape())


def gathered(b: Builder, value: SSAValue, dimension: int, index: SSAValue) -> SSAValue:
    """For each element of `index`, the element of `value` in its place but at that position along a dimension."""
    return picked(b, value, places_along(b, value, dimension, index))


def _gather(b: Builder, value: SSAValue, dim: int, index: SSAValue, *_: object, **_keywords: object) -> SSAValue:
    if 0 in shape(index):  # then it may have other dimensions than the value
        return b.splat(0, b.plain(b.result))
    value, index = with_dimension(b, value), with_dimension(b, index)
    dimension = dimension_of(dim, len(shape(value)))
    return b.reshape(gathered(b, value, dimension, index), b.result.get_shape())


def with_dimension(b: Builder, value: SSAValue) -> SSAValue:
    """A tensor without dimensions as one with one element."""
    return value if shape(value) else b.reshape(value, (1,))


def flat(b: Builder, value: SSAValue) -> SSAValue:
    """The elements of a value in one dimension."""
    return b.reshape(value, (math.prod(shape(value)),))


def _take(b: Builder, value: SSAValue, index: SSAValue) -> SSAValue:
    value = flat(b, value)
    return picked(b, value, places_at(b, value, [index], True))


CONVERSIONS: Mapping[str, Converter] = {
    "aten.index.Tensor": _index,
    "aten._unsafe_index.Tensor": _index,
    "aten.embedding.default": _embedding,
    "aten.index_select.default": _index_select,
    "aten.gather.default": _gather,
    "aten.take.default": _take,
}
"""Converters of this family."""

REJECTIONS: Mapping[str, str] = {
    **{
        f"aten.{name}": DYNAMIC
        for name in (
            *("nonzero.default", "masked_select.default", "argwhere.default", "unique_consecutive.default"),
            *("unique_dim.default", "_unique.default", "_unique2.default", "bincount.default"),
            *("repeat_interleave.Tensor",),
        )
    },
}
"""Operators of this family that have no StableHLO form, with the reason."""
