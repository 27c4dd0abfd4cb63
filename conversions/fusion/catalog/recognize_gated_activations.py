"""Gated activations that are spelled out in PyTorch operators: SwiGLU and GeGLU.

Gate and factor that are the halves of one tensor become `silu_and_mul` and `gelu_and_mul`, two tensors `silu_mul` and
`gelu_mul`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from vllm_ir.conversions.fusion.catalog.spellings import by_dtype
from vllm_ir.conversions.fusion.fusion import Fusion, Numerics
from vllm_ir.frontends.ops import ops

Split: TypeAlias = Callable[[Tensor], tuple[Tensor, Tensor]]

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_FORMS = ("none", "tanh")


def _chunks(x: Tensor) -> tuple[Tensor, Tensor]:
    gate, up = x.chunk(2, dim=-1)
    return gate, up


def _slices(x: Tensor) -> tuple[Tensor, Tensor]:
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def _sizes(x: Tensor) -> tuple[Tensor, Tensor]:
    half = x.shape[-1] // 2
    gate, up = torch.split(x, [half, half], dim=-1)
    return gate, up


_SPLITS: tuple[Split, ...] = (_chunks, _slices, _sizes)


def _silu_of_halves(x: Tensor, split: Split) -> Tensor:
    gate, up = split(x)
    return F.silu(gate) * up


def _silu_and_mul(x: Tensor, _: Split) -> Tensor:
    return ops.silu_and_mul(x)


def _gelu_of_halves(x: Tensor, split: Split, approximate: str) -> Tensor:
    gate, up = split(x)
    return F.gelu(gate, approximate=approximate) * up


def _gelu_and_mul(x: Tensor, _: Split, approximate: str) -> Tensor:
    return ops.gelu_and_mul(x, approximate)


def _silu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def _silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    return ops.silu_mul(gate, up)


def _gelu(gate: Tensor, up: Tensor, approximate: str) -> Tensor:
    return F.gelu(gate, approximate=approximate) * up


def _gelu_mul(gate: Tensor, up: Tensor, approximate: str) -> Tensor:
    return ops.gelu_mul(gate, up, approximate)


def _gelu_by_steps(gate: Tensor, up: Tensor) -> Tensor:
    """The approximation as T5 and GPT-2 spell it ("gelu_new"), with each step rounded."""
    inner = math.sqrt(2.0 / math.pi) * (gate + 0.044715 * torch.pow(gate, 3.0))
    return 0.5 * gate * (1.0 + torch.tanh(inner)) * up


def _gelu_mul_of_steps(gate: Tensor, up: Tensor) -> Tensor:
    return ops.gelu_mul(gate, up, "tanh")


def _numerics_of_steps(gate: Tensor, _: Tensor) -> Numerics:
    """The operator computes in float32 and rounds once."""
    return Numerics.REORDERED if gate.dtype is torch.float32 else Numerics.CHANGED


def _pair(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return torch.randn(5, 16).to(dtype), torch.randn(5, 16).to(dtype)


def _examples_of_halves() -> Iterator[tuple[object, ...]]:
    for dtype, split in by_dtype(_SPLITS):
        yield torch.randn(5, 32).to(dtype), split


def _examples_of_halves_and_form() -> Iterator[tuple[object, ...]]:
    for example in _examples_of_halves():
        for form in _FORMS:
            yield *example, form


def _examples() -> Iterator[tuple[object, ...]]:
    for dtype in _DTYPES:
        yield _pair(dtype)


def _examples_with_form() -> Iterator[tuple[object, ...]]:
    for dtype, form in product(_DTYPES, _FORMS):
        yield *_pair(dtype), form


FUSIONS = (
    Fusion("recognize_silu_and_mul", _silu_of_halves, _silu_and_mul, _examples_of_halves),
    Fusion("recognize_gelu_and_mul", _gelu_of_halves, _gelu_and_mul, _examples_of_halves_and_form),
    Fusion("recognize_silu_mul", _silu, _silu_mul, _examples),
    Fusion("recognize_gelu_mul", _gelu, _gelu_mul, _examples_with_form),
    Fusion("recognize_gelu_mul_by_steps", _gelu_by_steps, _gelu_mul_of_steps, _examples, _numerics_of_steps),
)
