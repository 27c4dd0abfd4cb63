"""A residual addition and norm whose rows are padded with zeros, as for kernels of experts; a router may read them too.

The router's product then reads the first columns of the padded rows. They are the same numbers at other distances, at
which libraries for matrices may add up in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import TypeAlias

import torch
from torch import Tensor

from vllm_ir.conversions.fusion.fusion import Fusion, Numerics
from vllm_ir.frontends.ops import ops

Pad: TypeAlias = Callable[[Tensor, int], Tensor]

_DTYPES = (torch.bfloat16, torch.float32, torch.float16)


def _padded(x: Tensor, padding: int) -> Tensor:
    """As `torch.nn.functional.pad` does."""
    return torch.constant_pad_nd(x, [0, padding], 0.0)


def _padded_by_default(x: Tensor, padding: int) -> Tensor:
    return torch.constant_pad_nd(x, [0, padding])


def _pad(x: Tensor, residual: Tensor, weight: Tensor | None, epsilon: float, padding: int, pad: Pad) -> object:
    normed, total = ops.fused_add_rms_norm(x, residual, weight, epsilon)
    return pad(normed, padding), total


def _pad_fused(x: Tensor, residual: Tensor, weight: Tensor | None, epsilon: float, padding: int, _pad: Pad) -> object:
    return ops.fused_add_rms_norm_pad(x, residual, weight, epsilon, padding)


def _product(rows: Tensor, bias: Tensor | None, matrix: Tensor) -> Tensor:
    """What a linear layer is: `matrix` has a column for each output."""
    return torch.mm(rows, matrix) if bias is None else torch.addmm(bias, rows, matrix)


def _router(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    padding: int,
    pad: Pad,
    bias: Tensor | None,
    matrix: Tensor,
) -> object:
    normed, total = ops.fused_add_rms_norm(x, residual, weight, epsilon)
    return pad(normed, padding), _product(normed, bias, matrix), total


def _router_fused(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    padding: int,
    _pad: Pad,
    bias: Tensor | None,
    matrix: Tensor,
) -> object:
    padded, total = ops.fused_add_rms_norm_pad(x, residual, weight, epsilon, padding)
    return padded, _product(padded[..., : x.shape[-1]], bias, matrix), total


def _examples() -> Iterator[tuple[object, ...]]:
    for number, (pad, weighted) in enumerate(product((_padded, _padded_by_default), (True, False))):
        dtype = _DTYPES[number % 3]
        x, residual = (torch.randn(5, 16).to(dtype) for _ in range(2))
        yield x, residual, torch.randn(16).to(dtype) if weighted else None, 1e-6, 3, pad


def _router_examples() -> Iterator[tuple[object, ...]]:
    for biased in (False, True):
        for number, example in enumerate(_examples()):
            dtype = _DTYPES[number % 3]
            yield *example, torch.randn(6).to(dtype) if biased else None, torch.randn(16, 6).to(dtype)


FUSIONS = (
    Fusion("add_rms_norm_pad", _pad, _pad_fused, _examples),
    Fusion("add_rms_norm_pad_router", _router, _router_fused, _router_examples, Numerics.REORDERED),
)
