"""A norm whose result is flattened to rows: the rows are made first, so that the norm is one of a matrix."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor

from vllm_ir.conversions.fusion.fusion import Fusion, Numerics
from vllm_ir.frontends.ops import ops


def _before(x: Tensor, residual: Tensor | None, weight: Tensor | None, epsilon: float, hidden: int) -> object:
    if residual is None:
        return ops.rms_norm(x, weight, epsilon).view(-1, hidden)
    normed, total = ops.fused_add_rms_norm(x, residual, weight, epsilon)
    return normed.view(-1, hidden), total


def _after(x: Tensor, residual: Tensor | None, weight: Tensor | None, epsilon: float, hidden: int) -> object:
    rows = x.reshape(-1, hidden)
    if residual is None:
        return ops.rms_norm(rows, weight, epsilon)
    normed, total = ops.fused_add_rms_norm(rows, residual.reshape(-1, hidden), weight, epsilon)
    return normed, total.view(x.shape)


def _keeps_rows(x: Tensor, *rest: object) -> bool:
    """Whether rows of the result are those that are normalised, and the norm is not one of a matrix already."""
    return x.dim() > 2 and x.shape[-1] == rest[-1]


def _examples() -> Iterator[tuple[object, ...]]:
    dtypes = (torch.bfloat16, torch.float32, torch.float16, torch.bfloat16)
    for dtype, (added, weighted) in zip(dtypes, product((False, True), (True, False)), strict=True):
        x, residual = (torch.randn(2, 3, 16).to(dtype) for _ in range(2))
        weight = torch.randn(16).to(dtype) if weighted else None
        yield x, residual if added else None, weight, 1e-6, 16


FUSIONS = (
    # Vectorised sums of one row and of several rows may round otherwise.
    Fusion("rms_norm_reshape", _before, _after, _examples, Numerics.REORDERED, _keeps_rows),
)
