"""Scaled dot product attention, in the formula of PyTorch's fused kernel on the CPU.

Scores are computed in `f32` for narrow types, like the sums over them. Fewer heads of keys than of queries are shared
by groups of queries, without repeating them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import i1
from xdsl.ir import SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Converter, Rejected
from vllm_ir.conversions.convert_to_stablehlo.creation import triangle
from vllm_ir.conversions.convert_to_stablehlo.dtypes import element, shape
from vllm_ir.conversions.convert_to_stablehlo.matmul import dot
from vllm_ir.conversions.convert_to_stablehlo.reductions import extreme, keep, total
from vllm_ir.dialects import stablehlo

_MINUS_INFINITY = -float("inf")


def _attention(
    b: Builder,
    query: SSAValue,
    key: SSAValue,
    value: SSAValue,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: SSAValue | None = None,
    scale: float | None = None,
) -> Sequence[SSAValue]:
    """The output, and the logarithm of the sum of the exponentials of each row of scores."""
    if dropout_p:
        raise Rejected(f"it drops out with probability {dropout_p}, at random; use the model in eval mode")
    scores = _grouped_dot(b, query, key, ((3,), (3,)))
    factor = 1.0 / math.sqrt(shape(query)[3]) if scale is None else scale
    scores = b.binary(stablehlo.MultiplyOp, scores, factor)
    scores = _masked(b, scores, attn_mask, is_causal)
    best = extreme(b, scores, [3], True)
    # A row without any allowed position has no weights, rather than the difference of two infinities.
    base = b.select(b.compare("EQ", best, _MINUS_INFINITY), b.splat(0.0, b.plain(best.type)), best)
    powers = b.unary(stablehlo.ExponentialOp, b.binary(stablehlo.SubtractOp, scores, keep(b, base, scores, [3])))
    sums = total(b, powers, [3])
    divisor = b.select(b.compare("EQ", sums, 0.0), b.splat(1.0, b.plain(sums.type)), sums)
    weights = b.binary(stablehlo.DivideOp, powers, keep(b, divisor, powers, [3]))
    output = _grouped_dot(b, b.convert(weights, element(value)), value, ((3,), (2,)))
    logs = b.binary(stablehlo.AddOp, base, b.unary(stablehlo.LogOp, sums))
    return [b.convert(output, b.results[0].element_type), b.convert(logs, b.results[1].element_type)]


def _grouped_dot(
    b: Builder, rows: SSAValue, shared: SSAValue, contracted: tuple[Sequence[int], Sequence[int]]
) -> SSAValue:
    """Products for each head of `rows` with the head of `shared` that its group has."""
    batch, heads, length, _ = shape(rows)
    groups = shape(shared)[1]
    joined = b.reshape(rows, (batch, groups, heads // groups * length, shape(rows)[3]))
    product = dot(b, joined, shared, contracted, ((0, 1), (0, 1)))
    return b.reshape(product, (batch, heads, length, shape(product)[3]))


def _masked(b: Builder, scores: SSAValue, mask: SSAValue | None, causal: bool) -> SSAValue:
    sizes = shape(scores)
    if causal:
        allowed = b.broadcast(triangle(b, sizes[-2:], 0, True), sizes)
        scores = b.select(allowed, scores, _MINUS_INFINITY)
    if mask is None:
        return scores
    if element(mask) == i1:
        return b.select(b.broadcast(mask, sizes), scores, _MINUS_INFINITY)
    return b.binary(stablehlo.AddOp, scores, b.like(mask, b.plain(scores.type)))


CONVERSIONS: Mapping[str, Converter] = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _attention,
}
"""Converters of this family."""
