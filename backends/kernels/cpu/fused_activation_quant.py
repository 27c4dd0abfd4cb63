"""Provider `cpu` of gated activations whose result is quantised, while it is in a thread's own memory.

The kernels give the bits of the two kernels, one after the other, and take what both take.
"""

import torch
from torch import Tensor

from vllm_ir.backends.kernels.cpu.build import KERNEL_FILES
from vllm_ir.backends.kernels.cpu.layouts import known
from vllm_ir.backends.kernels.cpu.library import call, define
from vllm_ir.backends.kernels.cpu.providers import PROVIDER, SUPPORTED, takes_gelu_and_mul
from vllm_ir.backends.kernels.cpu.quantization import takes_one_number, with_scales
from vllm_ir.frontends.ops import ops
from vllm_ir.frontends.ops.quantization import FP8

_GELUS = {"none": "gelu", "tanh": "gelu_tanh"}
"""What the kernels call the forms of `gelu`."""


def _half(x: Tensor) -> Tensor:
    return x[..., : x.shape[-1] // 2]


def _static_fake(x: Tensor, _scale: Tensor, _activation: str) -> Tensor:
    return torch.empty_like(_half(x), dtype=FP8)


def _token_fake(x: Tensor, _scale_ub: Tensor | None, _activation: str) -> tuple[Tensor, Tensor]:
    return with_scales(_half(x), FP8, 1)


def _group_fake(
    x: Tensor, group_size: int, _use_ue8m0: bool, _epsilon: float, _activation: str
) -> tuple[Tensor, Tensor]:
    return with_scales(_half(x), FP8, x.shape[-1] // 2 // group_size)


GATED_STATIC_FP8_QUANT = define(
    "gated_static_fp8_quant(Tensor x, Tensor scale, str activation) -> Tensor", _static_fake
)
GATED_TOKEN_FP8_QUANT = define(
    "gated_token_fp8_quant(Tensor x, Tensor? scale_ub, str activation) -> (Tensor, Tensor)", _token_fake
)
GATED_GROUP_FP8_QUANT = define(
    "gated_group_fp8_quant(Tensor x, SymInt group_size, bool use_ue8m0, float epsilon, str activation)"
    " -> (Tensor, Tensor)",
    _group_fake,
)


def _takes_static_gelu(x: Tensor, scale: Tensor, approximate: str) -> bool:
    return takes_gelu_and_mul(x, approximate) and takes_one_number(scale)


def _takes_static(x: Tensor, scale: Tensor) -> bool:
    return _takes_static_gelu(x, scale, "none")


def _takes_token_gelu(x: Tensor, scale_ub: Tensor | None, approximate: str) -> bool:
    # The native definition refuses rows without elements.
    return (
        takes_gelu_and_mul(x, approximate)
        and known(x.shape[-1] > 0)
        and (scale_ub is None or takes_one_number(scale_ub))
    )


def _takes_token(x: Tensor, scale_ub: Tensor | None) -> bool:
    return _takes_token_gelu(x, scale_ub, "none")


def _takes_groups_gelu(x: Tensor, group_size: int, _use_ue8m0: bool, epsilon: float, approximate: str) -> bool:
    return (
        takes_gelu_and_mul(x, approximate)
        and epsilon > 0
        and known(group_size > 0)
        and known(x.shape[-1] // 2 % group_size == 0)
    )


def _takes_groups(x: Tensor, group_size: int, _use_ue8m0: bool, epsilon: float) -> bool:
    return _takes_groups_gelu(x, group_size, _use_ue8m0, epsilon, "none")


@ops.silu_and_mul_static_fp8_quant.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, batch_invariant=True, supports_args=_takes_static
)
def silu_and_mul_static_fp8_quant(x: Tensor, scale: Tensor) -> Tensor:
    """`silu_and_mul_static_fp8_quant` by one kernel."""
    (quantized,) = call(GATED_STATIC_FP8_QUANT, x, scale, "silu")
    return quantized


@ops.silu_and_mul_dynamic_per_token_fp8_quant.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, batch_invariant=True, supports_args=_takes_token
)
def silu_and_mul_dynamic_per_token_fp8_quant(x: Tensor, scale_ub: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """`silu_and_mul_dynamic_per_token_fp8_quant` by one kernel."""
    quantized, scales = call(GATED_TOKEN_FP8_QUANT, x, scale_ub, "silu")
    return quantized, scales


@ops.silu_and_mul_per_token_group_fp8_quant.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, batch_invariant=True, supports_args=_takes_groups
)
def silu_and_mul_per_token_group_fp8_quant(
    x: Tensor, group_size: int, use_ue8m0: bool = False, epsilon: float = 1e-10
) -> tuple[Tensor, Tensor]:
    """`silu_and_mul_per_token_group_fp8_quant` by one kernel."""
    quantized, scales = call(GATED_GROUP_FP8_QUANT, x, group_size, use_ue8m0, epsilon, "silu")
    return quantized, scales


@ops.gelu_and_mul_static_fp8_quant.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, batch_invariant=True, supports_args=_takes_static_gelu
)
def gelu_and_mul_static_fp8_quant(x: Tensor, scale: Tensor, approximate: str = "none") -> Tensor:
    """`gelu_and_mul_static_fp8_quant` by one kernel."""
    (quantized,) = call(GATED_STATIC_FP8_QUANT, x, scale, _GELUS[approximate])
    return quantized


@ops.gelu_and_mul_dynamic_per_token_fp8_quant.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, batch_invariant=True, supports_args=_takes_token_gelu
)
def gelu_and_mul_dynamic_per_token_fp8_quant(
    x: Tensor, scale_ub: Tensor | None = None, approximate: str = "none"
) -> tuple[Tensor, Tensor]:
    """`gelu_and_mul_dynamic_per_token_fp8_quant` by one kernel."""
    quantized, scales = call(GATED_TOKEN_FP8_QUANT, x, scale_ub, _GELUS[approximate])
    return quantized, scales


@ops.gelu_and_mul_per_token_group_fp8_quant.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, batch_invariant=True, supports_args=_takes_groups_gelu
)
def gelu_and_mul_per_token_group_fp8_quant(
    x: Tensor, group_size: int, use_ue8m0: bool = False, epsilon: float = 1e-10, approximate: str = "none"
) -> tuple[Tensor, Tensor]:
    """`gelu_and_mul_per_token_group_fp8_quant` by one kernel."""
    quantized, scales = call(GATED_GROUP_FP8_QUANT, x, group_size, use_ue8m0, epsilon, _GELUS[approximate])
    return quantized, scales
