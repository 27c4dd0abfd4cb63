"""AITER's functions as torch operators, in the namespace `vllm_ir_aiter`.

The functions compile themselves when they are called, and read addresses, so that no tracer must look inside. The
operators have schemas and fake kernels, and call them with real tensors.
"""

# pyright: reportUnknownMemberType=false
# torch.library lacks types.

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from vllm_ir.backends.kernels.aiter_kernels.library import function
from vllm_ir.backends.kernels.external import Operator

NAMESPACE = "vllm_ir_aiter"

# Definitions die with the library object.
_LIBRARY = torch.library.Library(NAMESPACE, "DEF")


def _define(schema: str, fake: Callable[..., object], kernel: Callable[..., object]) -> Operator:
    """Define an operator, by its schema with the name in front."""
    name = schema.partition("(")[0]
    _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    _LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_LIBRARY)
    return cast("Operator", getattr(getattr(torch.ops, NAMESPACE), name).default)


def _like(x: Tensor, *_others: object) -> Tensor:
    return x.new_empty(x.shape)


def _two_like(x: Tensor, *_others: object) -> tuple[Tensor, Tensor]:
    return _like(x), _like(x)


def _half(x: Tensor) -> Tensor:
    return x.new_empty((*x.shape[:-1], x.shape[-1] // 2))


def _rows(x: Tensor) -> Tensor:
    """Contiguous, with two dimensions. A compiler may have laid out otherwise what `supports_args` has seen."""
    return x.contiguous().view(-1, x.shape[-1])


def _rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    result = cast("Tensor", function("rms_norm")(_rows(x), weight, epsilon))
    return result.view(x.shape)


def _fused_add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    result, total = _two_like(x)
    function("rmsnorm2d_fwd_with_add")(_rows(result), _rows(x), _rows(residual), _rows(total), weight, epsilon)
    return result, total


def _silu_and_mul(x: Tensor) -> Tensor:
    result = _half(x)
    function("silu_and_mul")(result, x.contiguous())
    return result


RMS_NORM = _define("rms_norm(Tensor x, Tensor weight, float epsilon) -> Tensor", _like, _rms_norm)
FUSED_ADD_RMS_NORM = _define(
    "fused_add_rms_norm(Tensor x, Tensor residual, Tensor weight, float epsilon) -> (Tensor, Tensor)",
    _two_like,
    _fused_add_rms_norm,
)
SILU_AND_MUL = _define("silu_and_mul(Tensor x) -> Tensor", _half, _silu_and_mul)
