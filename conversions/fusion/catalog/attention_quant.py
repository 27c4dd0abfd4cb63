"""Paged attention and the quantisation of its result to fp8."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor

from vllm_ir.conversions.fusion.fusion import Fusion
from vllm_ir.frontends.ops import ops


def _attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    table: Tensor,
    lengths: Tensor,
    starts: Tensor,
    scale: float,
    output_scale: Tensor,
    width: int,
    window: int | None,
    cap: float | None,
) -> Tensor:
    heads = ops.paged_attention(query, key_cache, value_cache, table, lengths, starts, scale, window, cap)
    return ops.static_scaled_fp8_quant(heads.view(-1, width), output_scale)


def _attention_fused(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    table: Tensor,
    lengths: Tensor,
    starts: Tensor,
    scale: float,
    output_scale: Tensor,
    _width: int,
    window: int | None,
    cap: float | None,
) -> Tensor:
    return ops.paged_attention_static_fp8_quant(
        query, key_cache, value_cache, table, lengths, starts, scale, output_scale, window, cap
    )


def _examples() -> Iterator[tuple[object, ...]]:
    dtypes = (torch.bfloat16, torch.float32, torch.float16, torch.bfloat16)
    for dtype, (window, cap) in zip(dtypes, product((None, 3), (None, 30.0)), strict=True):
        query = torch.randn(3, 4, 16).to(dtype)
        caches = tuple(torch.randn(4, 4, 2, 16).to(dtype) for _ in range(2))
        places = torch.tensor([[0, 1], [2, 3]]), torch.tensor([5, 6]), torch.tensor([0, 1, 3])
        yield query, *caches, *places, 0.25, torch.tensor([0.01]), 64, window, cap


FUSIONS = (Fusion("attention_static_quant", _attention, _attention_fused, _examples),)
