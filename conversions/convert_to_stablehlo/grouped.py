"""Products of each row with the matrix of its group, as in mixtures of experts.

Groups follow each other: `offsets` says where each one ends. Few rows look their matrices up; many are multiplied with
all matrices in one product, of which they keep their group's, since StableHLO has no product of unequal pieces.
"""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import i32
from xdsl.ir import SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Converter, Rejected
from vllm_ir.conversions.convert_to_stablehlo.dtypes import element, shape
from vllm_ir.conversions.convert_to_stablehlo.matmul import dot
from vllm_ir.conversions.convert_to_stablehlo.places import Places, picked, places_at
from vllm_ir.dialects import stablehlo


def _grouped_product(
    b: Builder,
    left: SSAValue,
    right: SSAValue,
    offsets: SSAValue | None = None,
    bias: SSAValue | None = None,
    *_: object,
) -> SSAValue:
    if bias is not None:
        raise Rejected("it has a bias, which PyTorch does not define for groups; add it afterwards")
    ranks = (len(shape(left)), len(shape(right)))
    kind = b.result.element_type
    if offsets is None and ranks == (3, 3):
        return b.convert(dot(b, left, right, ((2,), (1,)), ((0,), (0,))), kind)
    if offsets is None or ranks != (2, 3):
        raise Rejected(
            f"operands of {ranks[0]} and {ranks[1]} dimensions have groups in the result or in the sums; "
            "only rows of the first operand can be grouped"
        )
    rows, groups = shape(left)[0], shape(right)[0]
    if 0 in b.result.get_shape() or not groups:
        return b.splat(0, b.result)
    group = _group_of_rows(b, offsets, rows)
    if rows <= groups:
        product = dot(b, left, picked(b, right, places_at(b, right, [group], False)), ((1,), (1,)), ((0,), (0,)))
    else:
        everything = dot(b, left, right, ((1,), (1,)))
        own = Places([b.iota(b.tensor((rows,), i32)), group], (0, 1), (1,), (rows,))
        product = picked(b, everything, own)
    known = b.broadcast_in(b.compare("LT", group, groups), shape(product), [0])
    return b.convert(b.select(known, product, 0), kind)


def _group_of_rows(b: Builder, offsets: SSAValue, rows: int) -> SSAValue:
    """For each row the number of its group: how many groups end at or before it; `tensor<rows x i32>`."""
    whole = (rows, *shape(offsets))
    number = b.iota(b.tensor(whole, element(offsets)), 0)
    ended = b.compare("GE", number, b.broadcast(offsets, whole))
    return b.reduce(b.convert(ended, i32), [1], stablehlo.AddOp, 0)


CONVERSIONS: Mapping[str, Converter] = {
    "aten._grouped_mm.default": _grouped_product,
    "transformers.grouped_mm_fallback.default": _grouped_product,
}
"""Converters of this family; transformers has an operator of its own for types that `_grouped_mm` does not take."""
