"""Paged attention and the quantisation of its result to fp8."""

from __future__ import annotations

from collections.abc import Iterator

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
) -> Tensor:
    heads = ops.paged_attention(query, key_cache, value_cache, table, lengths, starts, scale)
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
) -> Tensor:
    return ops.paged_attention_static_fp8_quant(
        query, key_cache, value_cache, table, lengths, starts, scale, output_scale
    )


def _examples() -> Iterator[tuple[object, ...]]:
    for dtype in (torch.bfloat16, torch.float32, torch.float16):
        query = torch.randn(3, 4, 16).to(dtype)
        caches = tuple(torch.randn(4, 4, 2, 16).to(dtype) for _ in range(2))
        places = torch.tensor([[0, 1], [2, 3]]), torch.tensor([5, 6]), torch.tensor([0, 1, 3])
        yield query, *caches, *places, 0.25, torch.tensor([0.01]), 64


FUSIONS = (Fusion("attention_static_quant", _attention, _attention_fused, _examples),)
