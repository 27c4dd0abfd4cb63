"""Rotary embedding with what comes before and behind it: norms of heads, and the paged cache of keys and values."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import cast

import torch
from torch import Tensor

from vllm_ir.conversions.fusion.fusion import Fusion
from vllm_ir.frontends.ops import ops

_TOKENS, _HEADS, _KV_HEADS, _SIZE = 5, 4, 2, 48


def pieces_of(qkv: Tensor, heads: int, kv_heads: int, head_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of a projection: views of it. Nothing changes values, so programs keep theirs."""
    query, key, value = torch.split(qkv, [heads * head_size, kv_heads * head_size, kv_heads * head_size], -1)
    return query, key, value


def normed_heads(x: Tensor, weight: Tensor | None, epsilon: float, heads: int, head_size: int) -> Tensor:
    """The norm of each head of rows of heads."""
    return ops.rms_norm(x.view(-1, heads, head_size), weight, epsilon).view(x.shape)


def _qk_norm_rope(
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
) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = pieces_of(qkv, heads, kv_heads, head_size)
    query = normed_heads(query, q_weight, epsilon, heads, head_size)
    key = normed_heads(key, k_weight, epsilon, kv_heads, head_size)
    return *ops.rotary_embedding(positions, query, key, head_size, table, is_neox), value


def _qk_norm_rope_fused(*arguments: object) -> object:
    query, key, _ = ops.qk_norm_rope(*arguments)
    return query, key, values_of(*arguments)


def values_of(*arguments: object) -> Tensor:
    """The values in the arguments of an op that begins as `qk_norm_rope` does."""
    heads, kv_heads, head_size = cast("tuple[int, int, int]", arguments[5:8])
    return pieces_of(cast(Tensor, arguments[0]), heads, kv_heads, head_size)[2]


def cached_heads(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slots: Tensor, kv_heads: int, head_size: int
) -> tuple[Tensor, Tensor]:
    """The caches with rows of heads in them."""
    shape = (-1, kv_heads, head_size)
    return ops.reshape_and_cache(key.view(shape), value.view(shape), key_cache, value_cache, slots)


def _rope_cache(
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slots: Tensor,
    kv_heads: int,
    head_size: int,
    table: Tensor,
    is_neox: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    query, key = ops.rotary_embedding(positions, query, key, head_size, table, is_neox)
    return query, key, *cached_heads(key, value, key_cache, value_cache, slots, kv_heads, head_size)


def _rope_cache_fused(
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slots: Tensor,
    _kv_heads: int,
    head_size: int,
    table: Tensor,
    is_neox: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return ops.rope_and_cache(positions, query, key, value, key_cache, value_cache, slots, head_size, table, is_neox)


def _qk_norm_rope_cache(
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
) -> tuple[Tensor, ...]:
    query, key, value = _qk_norm_rope(
        qkv, positions, q_weight, k_weight, epsilon, heads, kv_heads, head_size, table, is_neox
    )
    return query, key, value, *cached_heads(key, value, key_cache, value_cache, slots, kv_heads, head_size)


def _qk_norm_rope_cache_fused(*arguments: object) -> object:
    query, key, _, *caches = ops.qk_norm_rope_and_cache(*arguments)
    return query, key, values_of(*arguments), *caches


def _normed_examples() -> Iterator[tuple[object, ...]]:
    dtypes = (torch.bfloat16, torch.float32, torch.float16, torch.bfloat16)
    for dtype, (is_neox, weighted) in zip(dtypes, product((True, False), (True, False)), strict=True):
        qkv = torch.randn(_TOKENS, (_HEADS + 2 * _KV_HEADS) * _SIZE).to(dtype)
        weights = tuple(torch.randn(_SIZE).to(dtype) if weighted else None for _ in range(2))
        sizes = (1e-6, _HEADS, _KV_HEADS, _SIZE)
        yield qkv, torch.arange(_TOKENS), *weights, *sizes, torch.randn(32, _SIZE).to(dtype), is_neox


def _caches(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    shape = (3, 4, _KV_HEADS, _SIZE)
    return torch.randn(shape).to(dtype), torch.randn(shape).to(dtype), torch.tensor([7, 0, 3, 11, 2])


def cache_examples() -> Iterator[tuple[object, ...]]:
    """Arguments of rotation and write to the cache."""
    for dtype, is_neox in ((torch.bfloat16, True), (torch.float32, False), (torch.float16, True)):
        query = torch.randn(_TOKENS, _HEADS * _SIZE).to(dtype)
        key, value = (torch.randn(_TOKENS, _KV_HEADS * _SIZE).to(dtype) for _ in range(2))
        table = torch.randn(32, _SIZE).to(dtype)
        yield torch.arange(_TOKENS), query, key, value, *_caches(dtype), _KV_HEADS, _SIZE, table, is_neox


def normed_cache_examples() -> Iterator[tuple[object, ...]]:
    """Arguments of norms of heads, rotation, and write to the cache."""
    for example in _normed_examples():
        dtype = example[0].dtype if isinstance(example[0], Tensor) else torch.float32
        yield *example, *_caches(dtype)


FUSIONS = (
    Fusion("qk_norm_rope", _qk_norm_rope, _qk_norm_rope_fused, _normed_examples),
    Fusion("rope_cache", _rope_cache, _rope_cache_fused, cache_examples),
    Fusion("qk_norm_rope_cache", _qk_norm_rope_cache, _qk_norm_rope_cache_fused, normed_cache_examples),
)
