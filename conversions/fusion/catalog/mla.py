"""Multi-head latent attention: rotary embedding with the cache of latents, and two norms side by side."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor

from vllm_ir.conversions.fusion.fusion import Fusion
from vllm_ir.frontends.ops import ops

_TOKENS, _HEADS, _ROPE, _LATENT = 5, 4, 16, 24


def _rope_cache(
    positions: Tensor,
    q_pe: Tensor,
    k_pe: Tensor,
    kv_c: Tensor,
    cache: Tensor,
    slots: Tensor,
    table: Tensor,
    rope_size: int,
    is_neox: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    query, key = ops.rotary_embedding(positions, q_pe, k_pe.unsqueeze(1), rope_size, table, is_neox)
    key = key.squeeze(1)
    return query, key, ops.concat_and_cache_mla(kv_c, key, cache, slots)


def _rope_cache_fused(
    positions: Tensor,
    q_pe: Tensor,
    k_pe: Tensor,
    kv_c: Tensor,
    cache: Tensor,
    slots: Tensor,
    table: Tensor,
    _rope_size: int,
    is_neox: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    return ops.mla_rope_and_cache(positions, q_pe, k_pe, kv_c, cache, slots, table, is_neox)


def _dual_norm(
    x: Tensor, x_weight: Tensor | None, y_weight: Tensor | None, epsilon: float, split: int, rest: int
) -> tuple[Tensor, Tensor]:
    first, second = torch.split(x, [split, rest], -1)
    return ops.rms_norm(first, x_weight, epsilon), ops.rms_norm(second, y_weight, epsilon)


def _dual_norm_fused(
    x: Tensor, x_weight: Tensor | None, y_weight: Tensor | None, epsilon: float, split: int, rest: int
) -> tuple[Tensor, Tensor]:
    first, second = torch.split(x, [split, rest], -1)
    return ops.dual_rms_norm(first, second, x_weight, y_weight, epsilon)


def _dynamic(
    x: Tensor, y: Tensor, x_weight: Tensor | None, y_weight: Tensor | None, epsilon: float, bound: Tensor | None
) -> object:
    first, second = ops.dual_rms_norm(x, y, x_weight, y_weight, epsilon)
    return *ops.dynamic_per_token_scaled_fp8_quant(first, bound), second


def _dynamic_fused(*arguments: object) -> object:
    return ops.dual_rms_norm_dynamic_per_token_fp8_quant(*arguments)


def _grouped(
    x: Tensor,
    y: Tensor,
    x_weight: Tensor | None,
    y_weight: Tensor | None,
    epsilon: float,
    group_size: int,
    powers: bool,
    least: float,
) -> object:
    first, second = ops.dual_rms_norm(x, y, x_weight, y_weight, epsilon)
    return *ops.per_token_group_fp8_quant(first, group_size, powers, least), second


def _grouped_fused(*arguments: object) -> object:
    return ops.dual_rms_norm_per_token_group_fp8_quant(*arguments)


def _rope_cache_examples() -> Iterator[tuple[object, ...]]:
    for dtype, is_neox in ((torch.bfloat16, True), (torch.float32, False), (torch.float16, True)):
        q_pe, k_pe = torch.randn(_TOKENS, _HEADS, _ROPE).to(dtype), torch.randn(_TOKENS, _ROPE).to(dtype)
        kv_c, cache = torch.randn(_TOKENS, _LATENT).to(dtype), torch.randn(3, 4, _LATENT + _ROPE).to(dtype)
        slots, table = torch.tensor([7, 0, 3, 11, 2]), torch.randn(32, _ROPE).to(dtype)
        yield torch.arange(_TOKENS), q_pe, k_pe, kv_c, cache, slots, table, _ROPE, is_neox


def _dual_norm_examples() -> Iterator[tuple[object, ...]]:
    for x, y, x_weight, y_weight in _pairs():
        if x is not None and y is not None:
            yield torch.cat((x, y), -1), x_weight, y_weight, 1e-6, 24, 16


def _pairs() -> Iterator[tuple[Tensor | None, ...]]:
    """Two tensors and their weights, which are there or not."""
    for dtype, (x_weighted, y_weighted) in zip(
        (torch.bfloat16, torch.float32, torch.float16, torch.bfloat16), product((True, False), repeat=2), strict=True
    ):
        x, y = torch.randn(_TOKENS, 24).to(dtype), torch.randn(_TOKENS, 16).to(dtype)
        x_weight = torch.randn(24).to(dtype) if x_weighted else None
        yield x, y, x_weight, torch.randn(16).to(dtype) if y_weighted else None


def _dynamic_examples() -> Iterator[tuple[object, ...]]:
    for bound in (None, torch.tensor([1.5])):
        for pair in _pairs():
            yield *pair, 1e-6, bound


def _grouped_examples() -> Iterator[tuple[object, ...]]:
    for powers in (False, True):
        for pair in _pairs():
            yield *pair, 1e-6, 8, powers, 1e-10


FUSIONS = (
    Fusion("mla_rope_cache", _rope_cache, _rope_cache_fused, _rope_cache_examples),
    Fusion("dual_rms_norm", _dual_norm, _dual_norm_fused, _dual_norm_examples),
    # These come behind the one above.
    Fusion("dual_rms_norm_dynamic_per_token_quant", _dynamic, _dynamic_fused, _dynamic_examples),
    Fusion("dual_rms_norm_per_token_group_quant", _grouped, _grouped_fused, _grouped_examples),
)
