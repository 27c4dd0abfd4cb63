"""Rotary embedding with the paged cache, and the quantisation of its queries to fp8.

These come behind the fusions that make such ops of their parts. On which side of the write to the cache a program
quantises is no matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor

from vllm_ir.conversions.fusion.catalog.mrope import mrope_cache_examples
from vllm_ir.conversions.fusion.catalog.rope import cache_examples, normed_cache_examples
from vllm_ir.conversions.fusion.fusion import Fusion
from vllm_ir.frontends.ops import ops


def _queries(query: Tensor, by_heads: bool, inputs: tuple[object, ...]) -> Tensor:
    """Rows of queries, or their heads: the size of one is at the same place in the arguments of all three ops."""
    size = cast(int, inputs[7])
    return query.view(-1, query.shape[-1] // size, size) if by_heads else query


def _rope_cache(scale: Tensor, by_heads: bool, *inputs: object) -> object:
    query, *rest = ops.rope_and_cache(*inputs)
    return ops.static_scaled_fp8_quant(_queries(query, by_heads, inputs), scale), *rest


def _rope_cache_fused(scale: Tensor, by_heads: bool, *inputs: object) -> object:
    query, *rest = ops.rope_and_cache_static_fp8_quant(*inputs, scale)
    return _queries(query, by_heads, inputs), *rest


def _qk_norm_rope_cache(scale: Tensor, by_heads: bool, *inputs: object) -> object:
    query, *rest = ops.qk_norm_rope_and_cache(*inputs)
    return ops.static_scaled_fp8_quant(_queries(query, by_heads, inputs), scale), *rest


def _qk_norm_rope_cache_fused(scale: Tensor, by_heads: bool, *inputs: object) -> object:
    query, *rest = ops.qk_norm_rope_and_cache_static_fp8_quant(*inputs, scale)
    return _queries(query, by_heads, inputs), *rest


def _qk_norm_mrope_cache(
    scale: Tensor, by_heads: bool, time: int, height: int, width: int, interleaved: bool, *inputs: object
) -> object:
    query, *rest = ops.qk_norm_mrope_and_cache(*inputs, [time, height, width], interleaved)
    return ops.static_scaled_fp8_quant(_queries(query, by_heads, inputs), scale), *rest


def _qk_norm_mrope_cache_fused(
    scale: Tensor, by_heads: bool, time: int, height: int, width: int, interleaved: bool, *inputs: object
) -> object:
    sections = ([time, height, width], interleaved)
    query, *rest = ops.qk_norm_mrope_and_cache_static_fp8_quant(*inputs, *sections, scale)
    return _queries(query, by_heads, inputs), *rest


def _rope_cache_examples() -> Iterator[tuple[object, ...]]:
    for by_heads in (False, True):
        for example in cache_examples():
            # The number of heads is a matter of the fusion that makes the op.
            yield torch.tensor([0.01]), by_heads, *example[:7], *example[8:]


def _normed_examples() -> Iterator[tuple[object, ...]]:
    for by_heads in (False, True):
        for example in normed_cache_examples():
            yield torch.tensor([0.01]), by_heads, *example


def _multimodal_examples() -> Iterator[tuple[object, ...]]:
    for by_heads in (False, True):
        for *inputs, time, height, width, interleaved in mrope_cache_examples():
            yield torch.tensor([0.01]), by_heads, time, height, width, interleaved, *inputs


FUSIONS = (
    Fusion("rope_cache_static_quant", _rope_cache, _rope_cache_fused, _rope_cache_examples),
    Fusion("qk_norm_rope_cache_static_quant", _qk_norm_rope_cache, _qk_norm_rope_cache_fused, _normed_examples),
    Fusion("qk_norm_mrope_cache_static_quant", _qk_norm_mrope_cache, _qk_norm_mrope_cache_fused, _multimodal_examples),
)
