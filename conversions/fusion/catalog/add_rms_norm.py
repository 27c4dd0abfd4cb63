"""A residual addition followed by a norm: `rms_norm(x + residual)` becomes `fused_add_rms_norm`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor

from vllm_ir.conversions.fusion.fusion import Fusion, Numerics
from vllm_ir.frontends.ops import ops


def _before(
    x: Tensor, residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None
) -> tuple[Tensor, Tensor]:
    total = x + residual
    return ops.rms_norm(total, weight, epsilon, variance_size), total


def _after(*arguments: object) -> object:
    return ops.fused_add_rms_norm(*arguments)


def _numerics(x: Tensor, residual: Tensor, *_: object) -> Numerics:
    """The fused op normalises the sum in float32; the sum of two tensors is rounded to their dtype first."""
    return Numerics.EXACT if x.dtype is residual.dtype is torch.float32 else Numerics.CHANGED


def _examples() -> Iterator[tuple[object, ...]]:
    for dtype, weighted, size in product((torch.float32, torch.bfloat16, torch.float16), (True, False), (None, 12)):
        x, residual = (torch.randn(5, 16).to(dtype) for _ in range(2))
        yield x, residual, torch.randn(16).to(dtype) if weighted else None, 1e-5, size


FUSIONS = (Fusion("add_rms_norm", _before, _after, _examples, _numerics),)
