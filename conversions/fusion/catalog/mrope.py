"""Multimodal rotary embedding between the norms of heads and the paged cache of keys and values."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from vllm_ir.conversions.fusion.catalog.rope import (
    cached_heads,
    normed_cache_examples,
    normed_heads,
    pieces_of,
    values_of,
)
from vllm_ir.conversions.fusion.fusion import Fusion
from vllm_ir.frontends.ops import ops

_SECTIONS = (7, 8, 9)
"""For the three axes; together half a head of the examples."""


def _qk_norm_mrope_cache(
    qkv: Tensor,
    positions: Tensor,
    q_weight: Tensor | None,
    k_weight: Tensor | None,
    epsilon: float,
    heads: int,
    kv_heads: int,
    head_size: int,
    table: Tensor,
    is_neox: bool,
    key_cache: Tensor,
    value_cache: Tensor,
    slots: Tensor,
    time: int,
    height: int,
    width: int,
    interleaved: bool,
) -> tuple[Tensor, ...]:
    query, key, value = pieces_of(qkv, heads, kv_heads, head_size)
    query = normed_heads(query, q_weight, epsilon, heads, head_size)
    key = normed_heads(key, k_weight, epsilon, kv_heads, head_size)
    sections = ([time, height, width], interleaved)
    query, key = ops.mrope_embedding(positions, query, key, head_size, table, is_neox, *sections)
    return query, key, value, *cached_heads(key, value, key_cache, value_cache, slots, kv_heads, head_size)


def _qk_norm_mrope_cache_fused(*arguments: object) -> object:
    *inputs, time, height, width, interleaved = arguments
    query, key, _, *caches = ops.qk_norm_mrope_and_cache(*inputs, [time, height, width], interleaved)
    return query, key, values_of(*inputs), *caches


def mrope_cache_examples() -> Iterator[tuple[object, ...]]:
    """Arguments of norms of heads, which have weights here, multimodal rotation, and write to the cache."""
    for interleaved in (False, True):
        for qkv, _, q_weight, *inputs in normed_cache_examples():
            if q_weight is not None:
                yield qkv, torch.randint(0, 32, (3, 5)), q_weight, *inputs, *_SECTIONS, interleaved


FUSIONS = (Fusion("qk_norm_mrope_cache", _qk_norm_mrope_cache, _qk_norm_mrope_cache_fused, mrope_cache_examples),)
