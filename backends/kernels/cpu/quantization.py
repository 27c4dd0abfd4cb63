"""Quantisation by provider `cpu`: the kernels as torch operators, which arguments they take, and the calls.

They take what the other kernels take (see `providers.py`), and give the bits of the native definitions. Quantised rows
are laid out like `x`; scales are contiguous. Nothing works in place: results are narrower than what they are made of.
"""

import torch
from torch import Tensor

from vllm_ir.backends.kernels.cpu.build import KERNEL_FILES
from vllm_ir.backends.kernels.cpu.layouts import is_dense, known
from vllm_ir.backends.kernels.cpu.library import call, define
from vllm_ir.backends.kernels.cpu.providers import PROVIDER, SUPPORTED, takes_rows
from vllm_ir.frontends.ops import ops
from vllm_ir.frontends.ops.quantization import FP8


def _static_fp8_fake(x: Tensor, _scale: Tensor) -> Tensor:
    return torch.empty_like(x, dtype=FP8)


def _static_int8_fake(x: Tensor, _scale: Tensor) -> Tensor:
    return torch.empty_like(x, dtype=torch.int8)


def with_scales(x: Tensor, dtype: torch.dtype, per_row: int) -> tuple[Tensor, Tensor]:
    """What fake kernels give: quantised rows, and so many scales for each."""
    return torch.empty_like(x, dtype=dtype), x.new_empty((*x.shape[:-1], per_row), dtype=torch.float32)


def _token_fp8_fake(x: Tensor, _scale_ub: Tensor | None = None) -> tuple[Tensor, Tensor]:
    return with_scales(x, FP8, 1)


def _token_int8_fake(x: Tensor) -> tuple[Tensor, Tensor]:
    return with_scales(x, torch.int8, 1)


def _group_fp8_fake(
    x: Tensor, group_size: int, _use_ue8m0: bool = False, _epsilon: float = 1e-10
) -> tuple[Tensor, Tensor]:
    return with_scales(x, FP8, x.shape[-1] // group_size)


def _group_int8_fake(x: Tensor, group_size: int, _epsilon: float = 1e-10) -> tuple[Tensor, Tensor]:
    return with_scales(x, torch.int8, x.shape[-1] // group_size)


STATIC_SCALED_FP8_QUANT = define("static_scaled_fp8_quant(Tensor x, Tensor scale) -> Tensor", _static_fp8_fake)
STATIC_SCALED_INT8_QUANT = define("static_scaled_int8_quant(Tensor x, Tensor scale) -> Tensor", _static_int8_fake)
DYNAMIC_PER_TOKEN_SCALED_FP8_QUANT = define(
    "dynamic_per_token_scaled_fp8_quant(Tensor x, Tensor? scale_ub=None) -> (Tensor, Tensor)", _token_fp8_fake
)
DYNAMIC_PER_TOKEN_SCALED_INT8_QUANT = define(
    "dynamic_per_token_scaled_int8_quant(Tensor x) -> (Tensor, Tensor)", _token_int8_fake
)
PER_TOKEN_GROUP_FP8_QUANT = define(
    "per_token_group_fp8_quant(Tensor x, SymInt group_size, bool use_ue8m0=False, float epsilon=1e-10)"
    " -> (Tensor, Tensor)",
    _group_fp8_fake,
)
PER_TOKEN_GROUP_INT8_QUANT = define(
    "per_token_group_int8_quant(Tensor x, SymInt group_size, float epsilon=1e-10) -> (Tensor, Tensor)",
    _group_int8_fake,
)


def takes_one_number(value: Tensor) -> bool:
    """Whether it is a scale of all, or a bound."""
    return is_dense(value) and value.dtype is torch.float32 and known(value.numel() == 1)


def _takes_static(x: Tensor, scale: Tensor) -> bool:
    return takes_rows(x) and takes_one_number(scale)


def _takes_elements(x: Tensor) -> bool:
    # The native definition refuses rows without elements.
    return takes_rows(x) and known(x.shape[-1] > 0)


def takes_tokens(x: Tensor, scale_ub: Tensor | None) -> bool:
    """Whether the kernels give each row a scale."""
    return _takes_elements(x) and (scale_ub is None or takes_one_number(scale_ub))


def takes_groups(x: Tensor, group_size: int, epsilon: float) -> bool:
    """Whether the kernels give each group a scale."""
    return takes_rows(x) and epsilon > 0 and known(group_size > 0) and known(x.shape[-1] % group_size == 0)


def _takes_fp8_groups(x: Tensor, group_size: int, _use_ue8m0: bool, epsilon: float) -> bool:
    return takes_groups(x, group_size, epsilon)


@ops.static_scaled_fp8_quant.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, batch_invariant=True, supports_args=_takes_static
)
def static_scaled_fp8_quant(x: Tensor, scale: Tensor) -> Tensor:
    """`static_scaled_fp8_quant` by the kernel."""
    (result,) = call(STATIC_SCALED_FP8_QUANT, x, scale)
    return result


@ops.static_scaled_int8_quant.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, batch_invariant=True, supports_args=_takes_static
)
def static_scaled_int8_quant(x: Tensor, scale: Tensor) -> Tensor:
    """`static_scaled_int8_quant` by the kernel."""
    (result,) = call(STATIC_SCALED_INT8_QUANT, x, scale)
    return result


@ops.dynamic_per_token_scaled_fp8_quant.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, batch_invariant=True, supports_args=takes_tokens
)
def dynamic_per_token_scaled_fp8_quant(x: Tensor, scale_ub: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """`dynamic_per_token_scaled_fp8_quant` by the kernel."""
    quantized, scales = call(DYNAMIC_PER_TOKEN_SCALED_FP8_QUANT, x, scale_ub)
    return quantized, scales


@ops.dynamic_per_token_scaled_int8_quant.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, batch_invariant=True, supports_args=_takes_elements
)
def dynamic_per_token_scaled_int8_quant(x: Tensor) -> tuple[Tensor, Tensor]:
    """`dynamic_per_token_scaled_int8_quant` by the kernel."""
    quantized, scales = call(DYNAMIC_PER_TOKEN_SCALED_INT8_QUANT, x)
    return quantized, scales


@ops.per_token_group_fp8_quant.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, batch_invariant=True, supports_args=_takes_fp8_groups
)
def per_token_group_fp8_quant(
    x: Tensor, group_size: int, use_ue8m0: bool = False, epsilon: float = 1e-10
) -> tuple[Tensor, Tensor]:
    """`per_token_group_fp8_quant` by the kernel."""
    quantized, scales = call(PER_TOKEN_GROUP_FP8_QUANT, x, group_size, use_ue8m0, epsilon)
    return quantized, scales


@ops.per_token_group_int8_quant.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, batch_invariant=True, supports_args=takes_groups
)
def per_token_group_int8_quant(x: Tensor, group_size: int, epsilon: float = 1e-10) -> tuple[Tensor, Tensor]:
    """`per_token_group_int8_quant` by the kernel."""
    quantized, scales = call(PER_TOKEN_GROUP_INT8_QUANT, x, group_size, epsilon)
    return quantized, scales
