"""A fusion: a norm whose result is capped becomes the vendor's op for both, which its compiler can do in one pass."""

from collections.abc import Iterator

import torch
from torch import Tensor

import vllm_ir as ir


def _before(x: Tensor, weight: Tensor, epsilon: float, cap: float) -> Tensor:
    return ir.ops.soft_cap(ir.ops.rms_norm(x, weight, epsilon), cap)


def _after(x: Tensor, weight: Tensor, epsilon: float, cap: float) -> Tensor:
    return ir.ops.capped_rms_norm(x, weight, epsilon, cap)


def _examples() -> Iterator[tuple[object, ...]]:
    for dtype in (torch.float32, torch.bfloat16):
        yield torch.randn(4, 8).to(dtype), torch.randn(8).to(dtype), 1e-6, 30.0


CAPPED_NORM = ir.Fusion("example_capped_norm", _before, _after, _examples)
