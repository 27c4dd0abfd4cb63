"""Attention in which several heads of queries share one of keys and values, without copies of keys and values.

Models repeat the heads of keys and values (`repeat_kv` in `transformers`) and call attention that knows of no groups.
With PyTorch's fused operator the repetition becomes its flag `enable_gqa`. Where scores are a product of matrices, the
queries of a group are put below one another instead. Sums are those of the same products, but libraries for matrices
add them up in an order that depends on sizes and strides.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from vllm_ir.conversions.fusion.fusion import Fusion, Numerics
from vllm_ir.frontends.fx.marks import mark

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_TIMES = 5
"""A number that is none of the sizes and dimensions: where it stands in a pattern, any other may stand."""


def _repeated(x: Tensor, times: int) -> Tensor:
    """`[batch, heads, tokens, size]` with each head `times` times."""
    batch, heads, tokens, size = x.shape
    return x[:, :, None, :, :].expand(batch, heads, times, tokens, size).reshape(batch, heads * times, tokens, size)


def _fused(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, times: int, scale: float | None, is_causal: bool
) -> Tensor:
    key, value = _repeated(key, times), _repeated(value, times)
    return F.scaled_dot_product_attention(query, key, value, mask, is_causal=is_causal, scale=scale)


def _fused_in_groups(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, _: int, scale: float | None, is_causal: bool
) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, mask, is_causal=is_causal, scale=scale, enable_gqa=True)


def _scores(query: Tensor, key: Tensor, times: int) -> Tensor:
    return torch.matmul(query, _repeated(key, times).transpose(2, 3))


def _scores_in_groups(query: Tensor, key: Tensor, times: int) -> Tensor:
    return _by_group(query, key.transpose(2, 3), times)


def _weighted(weights: Tensor, value: Tensor, times: int) -> Tensor:
    return torch.matmul(weights, _repeated(value, times))


def _weighted_in_groups(weights: Tensor, value: Tensor, times: int) -> Tensor:
    return _by_group(weights, value, times)


def _by_group(x: Tensor, matrices: Tensor, times: int) -> Tensor:
    """The products of `[batch, heads, rows, inner]` and `[batch, heads // times, inner, columns]`."""
    batch, heads, rows, inner = x.shape
    groups = x.reshape(batch, heads // times, times * rows, inner)
    return torch.matmul(groups, matrices).reshape(batch, heads, rows, matrices.shape[-1])


def _examples_fused() -> Iterator[tuple[object, ...]]:
    for masked, scale, is_causal in product((True, False), (0.375, None), (False, True)):
        if not masked or not is_causal:  # not both
            yield *_heads(torch.float32, masked), _TIMES, scale, is_causal
    for dtype in (torch.bfloat16, torch.float16):
        yield *_heads(dtype, masked=True), _TIMES, 0.375, False
    for masked, is_causal in ((True, False), (False, True)):
        *heads, mask = _heads(torch.float32, masked)
        heads = [mark(heads_of, (0, 2)) for heads_of in heads if heads_of is not None]
        yield *heads, None if mask is None else mark(mask, (0, 2, 3)), _TIMES, 0.375, is_causal


def _heads(dtype: torch.dtype, masked: bool) -> tuple[Tensor | None, ...]:
    query = torch.randn(2, 2 * _TIMES, 7, 16).to(dtype)
    key, value = (torch.randn(2, 2, 7, 16).to(dtype) for _ in range(2))
    return query, key, value, torch.randn(2, 1, 7, 7).to(dtype) if masked else None


def _examples_scores() -> Iterator[tuple[object, ...]]:
    """PyTorch's product of matrices has other operators for a batch of one, and copies heads that are strided."""
    for dtype, batch, strided in product(_DTYPES, (1, 2), (True, False)):
        yield _queries(dtype, batch, strided), torch.randn(batch, 2, 7, 16).to(dtype), _TIMES
    for batch, strided in product((1, 2), (True, False)):
        dimensions = (0, 2) if batch > 1 else (2,)
        query, key = _queries(torch.float32, batch, strided), torch.randn(batch, 2, 7, 16)
        yield mark(query, dimensions), mark(key, dimensions), _TIMES


def _queries(dtype: torch.dtype, batch: int, strided: bool) -> Tensor:
    query = torch.randn(batch, 6, 2 * _TIMES, 16).to(dtype).transpose(1, 2)
    return query if strided else query.contiguous()


def _examples_weighted() -> Iterator[tuple[object, ...]]:
    for dtype, batch in product(_DTYPES, (1, 2)):
        yield torch.rand(batch, 2 * _TIMES, 6, 7).to(dtype), torch.randn(batch, 2, 7, 16).to(dtype), _TIMES
    for batch in (1, 2):
        first = (0,) if batch > 1 else ()
        weights, value = torch.rand(batch, 2 * _TIMES, 6, 7), torch.randn(batch, 2, 7, 16)
        yield mark(weights, (*first, 2, 3)), mark(value, (*first, 2)), _TIMES


FUSIONS = (
    Fusion("recognize_grouped_attention", _fused, _fused_in_groups, _examples_fused, Numerics.REORDERED),
    Fusion("recognize_grouped_scores", _scores, _scores_in_groups, _examples_scores, Numerics.REORDERED),
    Fusion("recognize_grouped_values", _weighted, _weighted_in_groups, _examples_weighted, Numerics.REORDERED),
)
