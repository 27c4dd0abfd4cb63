"""Norms and `silu_and_mul` by provider `aiter`, of contiguous tensors in 16 bits.

AITER's function of a norm and a sum writes results of their own, so that nothing works in place.
"""

from typing import cast

import torch
from torch import Tensor

from vllm_ir.backends.kernels.aiter_kernels.library import LIBRARY, PROVIDER, SUPPORTED
from vllm_ir.backends.kernels.aiter_kernels.operators import FUSED_ADD_RMS_NORM, RMS_NORM, SILU_AND_MUL
from vllm_ir.backends.kernels.external.layouts import fits_rows, has_elements, is_contiguous, known, same_shape
from vllm_ir.frontends.ops import ops

# All that older releases are compiled for.
DTYPES = (torch.bfloat16, torch.float16)


def _takes(x: Tensor) -> bool:
    return LIBRARY.takes(x) and x.dtype in DTYPES and x.dim() >= 2 and has_elements(x) and is_contiguous(x)


def _takes_rms_norm(x: Tensor, weight: Tensor | None, _epsilon: float, variance_size: int | None) -> bool:
    return variance_size is None and weight is not None and _takes(x) and LIBRARY.takes(weight) and fits_rows(weight, x)


@ops.rms_norm.register_impl(PROVIDER, supported=SUPPORTED, supports_args=_takes_rms_norm)
def rms_norm(
    x: Tensor,
    weight: Tensor | None,
    epsilon: float,
    variance_size: int | None = None,  # noqa: ARG001  # None, as checked above
) -> Tensor:
    """`aiter.rms_norm(input, weight, epsilon)`, which makes the result."""
    return cast("Tensor", RMS_NORM(x, weight, epsilon))


def _takes_fused_add_rms_norm(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None
) -> bool:
    return (
        _takes_rms_norm(x, weight, epsilon, variance_size)
        and _takes(x_residual)
        and x_residual.dtype == x.dtype
        and same_shape(x_residual.shape, x.shape)
    )


@ops.fused_add_rms_norm.register_impl(PROVIDER, supported=SUPPORTED, supports_args=_takes_fused_add_rms_norm)
def fused_add_rms_norm(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    variance_size: int | None = None,  # noqa: ARG001  # None, as checked above
) -> tuple[Tensor, Tensor]:
    """`aiter.rmsnorm2d_fwd_with_add(out, input, residual_in, residual_out, weight, epsilon)`."""
    return cast("tuple[Tensor, Tensor]", FUSED_ADD_RMS_NORM(x, x_residual, weight, epsilon))


def _takes_silu_and_mul(x: Tensor) -> bool:
    return _takes(x) and known(x.shape[-1] % 2 == 0)


@ops.silu_and_mul.register_impl(PROVIDER, supported=SUPPORTED, supports_args=_takes_silu_and_mul)
def silu_and_mul(x: Tensor) -> Tensor:
    """`aiter.silu_and_mul(out, input)`."""
    return cast("Tensor", SILU_AND_MUL(x))
