"""Norms that are spelled out in PyTorch operators become `rms_norm`.

Spellings are those of models in `transformers`; each gives normalised values in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from vllm_ir.conversions.fusion.catalog.spellings import by_dtype
from vllm_ir.conversions.fusion.fusion import Fusion, Numerics
from vllm_ir.frontends.ops import ops

Spelling: TypeAlias = Callable[[Tensor, float], Tensor]

_EPSILON = 2.0**-20
"""One that float32 holds: `F.rms_norm` rounds it."""


def _power(x: Tensor, epsilon: float) -> Tensor:
    """As in Llama, Qwen3, Mistral and Gemma."""
    values = x.float()
    return values * torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + epsilon)


def _product(x: Tensor, epsilon: float) -> Tensor:
    values = x.float()
    return values * torch.rsqrt((values * values).mean(-1, keepdim=True) + epsilon)


def _scaled_as_it_is(x: Tensor, epsilon: float) -> Tensor:
    """As in T5: `x` is converted for its mean alone, and the product promotes it."""
    return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + epsilon)


def _power_of_mean(x: Tensor, epsilon: float) -> Tensor:
    """As in Gemma3n. PyTorch takes this power by `rsqrt`."""
    values = x.float()
    return values * torch.pow(values.pow(2).mean(-1, keepdim=True) + epsilon, -0.5)


def _quotient(x: Tensor, epsilon: float) -> Tensor:
    values = x.float()
    return values / torch.sqrt(values.pow(2).mean(-1, keepdim=True) + epsilon)


_SPELLINGS: tuple[Spelling, ...] = (_power, _product, _scaled_as_it_is, _power_of_mean, _quotient)


def _weight_last(x: Tensor, weight: Tensor, epsilon: float, spelling: Spelling) -> Tensor:
    """Rounded to the dtype of `x` before the weight is applied, as in Llama, Qwen3, Mistral and T5."""
    return weight * spelling(x, epsilon).to(x.dtype)


def _norm(x: Tensor, weight: Tensor, epsilon: float, _: Spelling) -> Tensor:
    return ops.rms_norm(x, weight, epsilon)


def _without_weight(x: Tensor, epsilon: float, spelling: Spelling) -> Tensor:
    return spelling(x, epsilon).to(x.dtype)


def _norm_without_weight(x: Tensor, epsilon: float, _: Spelling) -> Tensor:
    return ops.rms_norm(x, None, epsilon)


def _not_rounded(x: Tensor, weight: Tensor, epsilon: float, spelling: Spelling) -> Tensor:
    """Float32 throughout, as T5 does with weights of float32."""
    return weight * spelling(x, epsilon)


def _norm_of_float(x: Tensor, weight: Tensor, epsilon: float, _: Spelling) -> Tensor:
    return ops.rms_norm(x.float(), weight, epsilon)


def _rounded_last(
    x: Tensor, weight: Tensor, epsilon: float, spelling: Spelling, rounded: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Rounded after the weight is applied, as in Gemma, whose weight is `1 + weight.float()`."""
    return rounded(spelling(x, epsilon) * weight, x)


def _norm_rounded_last(x: Tensor, weight: Tensor, epsilon: float, *_: object) -> Tensor:
    return ops.rms_norm(x.float(), weight.float(), epsilon).to(x.dtype)


def _to(values: Tensor, x: Tensor) -> Tensor:
    return values.to(x.dtype)


def _type_as(values: Tensor, x: Tensor) -> Tensor:
    return values.type_as(x)


def _functional(x: Tensor, weight: Tensor | None, epsilon: float) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], weight, epsilon)


def _norm_of_functional(x: Tensor, weight: Tensor | None, epsilon: float) -> Tensor:
    if weight is None:
        return ops.rms_norm(x, None, epsilon)
    return ops.rms_norm(x.float(), weight.float(), epsilon).to(x.dtype)


def _numerics(*arguments: object) -> Numerics:
    """A quotient by a root is not a product with its reciprocal to the last bit."""
    return Numerics.REORDERED if _quotient in arguments else Numerics.EXACT


def _tensors(dtype: torch.dtype, weight_dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    return torch.randn(5, 16).to(dtype), torch.randn(16).to(weight_dtype or dtype)


def _examples() -> Iterator[tuple[object, ...]]:
    for dtype, spelling in by_dtype(_SPELLINGS):
        yield *_tensors(dtype), _EPSILON, spelling
    yield *_tensors(torch.bfloat16, torch.float32), _EPSILON, _power


def _examples_without_weight() -> Iterator[tuple[object, ...]]:
    for dtype, spelling in by_dtype(_SPELLINGS):
        yield _tensors(dtype)[0], _EPSILON, spelling


def _examples_not_rounded() -> Iterator[tuple[object, ...]]:
    for spelling in _SPELLINGS:
        yield *_tensors(torch.bfloat16, torch.float32), _EPSILON, spelling
    yield *_tensors(torch.float16, torch.float32), _EPSILON, _power


def _examples_rounded_last() -> Iterator[tuple[object, ...]]:
    for spelling, rounded in product(_SPELLINGS, (_to, _type_as)):
        yield *_tensors(torch.bfloat16, torch.float32), _EPSILON, spelling, rounded
    for dtype in (torch.bfloat16, torch.float16):
        yield *_tensors(dtype), _EPSILON, _power, _to


def _examples_functional() -> Iterator[tuple[object, ...]]:
    for dtype, weighted in by_dtype((True, False)):
        x, weight = _tensors(dtype)
        yield x, weight if weighted else None, _EPSILON


FUSIONS = (
    Fusion("recognize_rms_norm", _weight_last, _norm, _examples, _numerics),
    Fusion(
        "recognize_rms_norm_without_weight", _without_weight, _norm_without_weight, _examples_without_weight, _numerics
    ),
    Fusion("recognize_rms_norm_not_rounded", _not_rounded, _norm_of_float, _examples_not_rounded, _numerics),
    Fusion("recognize_rms_norm_rounded_last", _rounded_last, _norm_rounded_last, _examples_rounded_last, _numerics),
    Fusion("recognize_functional_rms_norm", _functional, _norm_of_functional, _examples_functional),
)
