"""Provider `cpu` of norms whose result is quantised: rows are quantised while they are in a thread's own memory.

They give the bits of the two kernels, one after the other, and take what both take. A residual is overwritten by the
new one; `x` stays.
"""

from collections.abc import Callable

import torch
from torch import SymInt, Tensor

from vllm_ir.backends.kernels.cpu.build import KERNEL_FILES
from vllm_ir.backends.kernels.cpu.library import call, define
from vllm_ir.backends.kernels.cpu.providers import PROVIDER, SUPPORTED, takes_fused_add_rms_norm, takes_norm
from vllm_ir.backends.kernels.cpu.quantization import takes_groups, takes_one_number, takes_tokens, with_scales
from vllm_ir.frontends.ops import ops
from vllm_ir.frontends.ops.quantization import FP8


def _static_fake(
    x: Tensor,
    _weight: Tensor | None,
    _scale: Tensor,
    _epsilon: float,
    _variance_size: int | SymInt | None,
    dtype: torch.dtype,
) -> Tensor:
    return torch.empty_like(x, dtype=dtype)


def _token_fake(
    x: Tensor,
    _weight: Tensor | None,
    _epsilon: float,
    _scale_ub: Tensor | None,
    _variance_size: int | SymInt | None,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    return with_scales(x, dtype, 1)


def _group_fake(
    x: Tensor,
    _weight: Tensor | None,
    _epsilon: float,
    group_size: int,
    _use_ue8m0: bool,
    _quant_epsilon: float,
    _variance_size: int | SymInt | None,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    return with_scales(x, dtype, x.shape[-1] // group_size)


def _with_residual(fake: Callable[..., object]) -> Callable[..., object]:
    """The fake kernel of the operator that has a residual behind `x`."""

    def behind(x: Tensor, _residual: Tensor, *rest: object) -> object:
        return fake(x, *rest)

    return behind


_STATIC = "Tensor scale, float epsilon, SymInt? variance_size, ScalarType dtype) -> Tensor"
_TOKEN = "float epsilon, Tensor? scale_ub, SymInt? variance_size, ScalarType dtype) -> (Tensor, Tensor)"
_GROUP = (
    "float epsilon, SymInt group_size, bool use_ue8m0, float quant_epsilon, SymInt? variance_size, ScalarType dtype)"
    " -> (Tensor, Tensor)"
)
_NORM = "Tensor x, Tensor? weight, "
_ADDED_NORM = "Tensor x, Tensor(a!) residual, Tensor? weight, "

RMS_NORM_STATIC_QUANT = define(f"rms_norm_static_quant({_NORM}{_STATIC}", _static_fake)
RMS_NORM_TOKEN_QUANT = define(f"rms_norm_token_quant({_NORM}{_TOKEN}", _token_fake)
RMS_NORM_GROUP_QUANT = define(f"rms_norm_group_quant({_NORM}{_GROUP}", _group_fake)
FUSED_ADD_RMS_NORM_STATIC_QUANT_ = define(
    f"fused_add_rms_norm_static_quant_({_ADDED_NORM}{_STATIC}", _with_residual(_static_fake)
)
FUSED_ADD_RMS_NORM_TOKEN_QUANT_ = define(
    f"fused_add_rms_norm_token_quant_({_ADDED_NORM}{_TOKEN}", _with_residual(_token_fake)
)
FUSED_ADD_RMS_NORM_GROUP_QUANT_ = define(
    f"fused_add_rms_norm_group_quant_({_ADDED_NORM}{_GROUP}", _with_residual(_group_fake)
)


def _takes_static(x: Tensor, weight: Tensor | None, scale: Tensor, _epsilon: float, variance_size: int | None) -> bool:
    return takes_norm(x, weight, variance_size) and takes_one_number(scale)


@ops.rms_norm_static_fp8_quant.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, batch_invariant=True, supports_args=_takes_static
)
def rms_norm_static_fp8_quant(
    x: Tensor, weight: Tensor | None, scale: Tensor, epsilon: float, variance_size: int | None = None
) -> Tensor:
    """`rms_norm_static_fp8_quant` by one kernel."""
    (quantized,) = call(RMS_NORM_STATIC_QUANT, x, weight, scale, epsilon, variance_size, FP8)
    return quantized


@ops.rms_norm_static_int8_quant.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, batch_invariant=True, supports_args=_takes_static
)
def rms_norm_static_int8_quant(
    x: Tensor, weight: Tensor | None, scale: Tensor, epsilon: float, variance_size: int | None = None
) -> Tensor:
    """`rms_norm_static_int8_quant` by one kernel."""
    (quantized,) = call(RMS_NORM_STATIC_QUANT, x, weight, scale, epsilon, variance_size, torch.int8)
    return quantized


def _takes_token(
    x: Tensor, weight: Tensor | None, _epsilon: float, scale_ub: Tensor | None, variance_size: int | None
) -> bool:
    return takes_norm(x, weight, variance_size) and takes_tokens(x, scale_ub)


@ops.rms_norm_dynamic_per_token_fp8_quant.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, batch_invariant=True, supports_args=_takes_token
)
def rms_norm_dynamic_per_token_fp8_quant(
    x: Tensor, weight: Tensor | None, epsilon: float, scale_ub: Tensor | None = None, variance_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """`rms_norm_dynamic_per_token_fp8_quant` by one kernel."""
    quantized, scales = call(RMS_NORM_TOKEN_QUANT, x, weight, epsilon, scale_ub, variance_size, FP8)
    return quantized, scales


def _takes_token_int8(x: Tensor, weight: Tensor | None, _epsilon: float, variance_size: int | None) -> bool:
    return takes_norm(x, weight, variance_size) and takes_tokens(x, None)


@ops.rms_norm_dynamic_per_token_int8_quant.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, batch_invariant=True, supports_args=_takes_token_int8
)
def rms_norm_dynamic_per_token_int8_quant(
    x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """`rms_norm_dynamic_per_token_int8_quant` by one kernel."""
    quantized, scales = call(RMS_NORM_TOKEN_QUANT, x, weight, epsilon, None, variance_size, torch.int8)
    return quantized, scales


def _takes_groups(
    x: Tensor,
    weight: Tensor | None,
    _epsilon: float,
    group_size: int,
    _use_ue8m0: bool,
    quant_epsilon: float,
    variance_size: int | None,
) -> bool:
    return takes_norm(x, weight, variance_size) and takes_groups(x, group_size, quant_epsilon)


@ops.rms_norm_per_token_group_fp8_quant.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, batch_invariant=True, supports_args=_takes_groups
)
def rms_norm_per_token_group_fp8_quant(
    x: Tensor,
    weight: Tensor | None,
    epsilon: float,
    group_size: int,
    use_ue8m0: bool = False,
    quant_epsilon: float = 1e-10,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """`rms_norm_per_token_group_fp8_quant` by one kernel."""
    quantized, scales = call(
        RMS_NORM_GROUP_QUANT, x, weight, epsilon, group_size, use_ue8m0, quant_epsilon, variance_size, FP8
    )
    return quantized, scales


def _takes_groups_int8(
    x: Tensor, weight: Tensor | None, _epsilon: float, group_size: int, quant_epsilon: float, variance_size: int | None
) -> bool:
    return takes_norm(x, weight, variance_size) and takes_groups(x, group_size, quant_epsilon)


@ops.rms_norm_per_token_group_int8_quant.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, batch_invariant=True, supports_args=_takes_groups_int8
)
def rms_norm_per_token_group_int8_quant(
    x: Tensor,
    weight: Tensor | None,
    epsilon: float,
    group_size: int,
    quant_epsilon: float = 1e-10,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """`rms_norm_per_token_group_int8_quant` by one kernel."""
    quantized, scales = call(
        RMS_NORM_GROUP_QUANT, x, weight, epsilon, group_size, False, quant_epsilon, variance_size, torch.int8
    )
    return quantized, scales


def _takes_added_static(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, scale: Tensor, epsilon: float, variance_size: int | None
) -> bool:
    return takes_fused_add_rms_norm(x, x_residual, weight, epsilon, variance_size) and takes_one_number(scale)


@ops.fused_add_rms_norm_static_fp8_quant.register_impl(
    PROVIDER,
    supported=SUPPORTED,
    sources=KERNEL_FILES,
    batch_invariant=True,
    supports_args=_takes_added_static,
    inplace=["x_residual"],
)
def fused_add_rms_norm_static_fp8_quant(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    scale: Tensor,
    epsilon: float,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """`fused_add_rms_norm_static_fp8_quant` by one kernel; the new residual is in `x_residual`."""
    (quantized,) = call(FUSED_ADD_RMS_NORM_STATIC_QUANT_, x, x_residual, weight, scale, epsilon, variance_size, FP8)
    return quantized, x_residual


@ops.fused_add_rms_norm_static_int8_quant.register_impl(
    PROVIDER,
    supported=SUPPORTED,
    sources=KERNEL_FILES,
    batch_invariant=True,
    supports_args=_takes_added_static,
    inplace=["x_residual"],
)
def fused_add_rms_norm_static_int8_quant(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    scale: Tensor,
    epsilon: float,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """`fused_add_rms_norm_static_int8_quant` by one kernel; the new residual is in `x_residual`."""
    (quantized,) = call(
        FUSED_ADD_RMS_NORM_STATIC_QUANT_, x, x_residual, weight, scale, epsilon, variance_size, torch.int8
    )
    return quantized, x_residual


def _takes_added_token(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    scale_ub: Tensor | None,
    variance_size: int | None,
) -> bool:
    return takes_fused_add_rms_norm(x, x_residual, weight, epsilon, variance_size) and takes_tokens(x, scale_ub)


@ops.fused_add_rms_norm_dynamic_per_token_fp8_quant.register_impl(
    PROVIDER,
    supported=SUPPORTED,
    sources=KERNEL_FILES,
    batch_invariant=True,
    supports_args=_takes_added_token,
    inplace=["x_residual"],
)
def fused_add_rms_norm_dynamic_per_token_fp8_quant(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    scale_ub: Tensor | None = None,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """`fused_add_rms_norm_dynamic_per_token_fp8_quant` by one kernel; the new residual is in `x_residual`."""
    quantized, scales = call(
        FUSED_ADD_RMS_NORM_TOKEN_QUANT_, x, x_residual, weight, epsilon, scale_ub, variance_size, FP8
    )
    return quantized, scales, x_residual


def _takes_added_token_int8(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None
) -> bool:
    return takes_fused_add_rms_norm(x, x_residual, weight, epsilon, variance_size) and takes_tokens(x, None)


@ops.fused_add_rms_norm_dynamic_per_token_int8_quant.register_impl(
    PROVIDER,
    supported=SUPPORTED,
    sources=KERNEL_FILES,
    batch_invariant=True,
    supports_args=_takes_added_token_int8,
    inplace=["x_residual"],
)
def fused_add_rms_norm_dynamic_per_token_int8_quant(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """`fused_add_rms_norm_dynamic_per_token_int8_quant` by one kernel; the new residual is in `x_residual`."""
    quantized, scales = call(
        FUSED_ADD_RMS_NORM_TOKEN_QUANT_, x, x_residual, weight, epsilon, None, variance_size, torch.int8
    )
    return quantized, scales, x_residual


def _takes_added_groups(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    group_size: int,
    _use_ue8m0: bool,
    quant_epsilon: float,
    variance_size: int | None,
) -> bool:
    return takes_fused_add_rms_norm(x, x_residual, weight, epsilon, variance_size) and takes_groups(
        x, group_size, quant_epsilon
    )


@ops.fused_add_rms_norm_per_token_group_fp8_quant.register_impl(
    PROVIDER,
    supported=SUPPORTED,
    sources=KERNEL_FILES,
    batch_invariant=True,
    supports_args=_takes_added_groups,
    inplace=["x_residual"],
)
def fused_add_rms_norm_per_token_group_fp8_quant(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    group_size: int,
    use_ue8m0: bool = False,
    quant_epsilon: float = 1e-10,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """`fused_add_rms_norm_per_token_group_fp8_quant` by one kernel; the new residual is in `x_residual`."""
    quantized, scales = call(
        FUSED_ADD_RMS_NORM_GROUP_QUANT_,
        x,
        x_residual,
        weight,
        epsilon,
        group_size,
        use_ue8m0,
        quant_epsilon,
        variance_size,
        FP8,
    )
    return quantized, scales, x_residual


def _takes_added_groups_int8(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    group_size: int,
    quant_epsilon: float,
    variance_size: int | None,
) -> bool:
    return takes_fused_add_rms_norm(x, x_residual, weight, epsilon, variance_size) and takes_groups(
        x, group_size, quant_epsilon
    )


@ops.fused_add_rms_norm_per_token_group_int8_quant.register_impl(
    PROVIDER,
    supported=SUPPORTED,
    sources=KERNEL_FILES,
    batch_invariant=True,
    supports_args=_takes_added_groups_int8,
    inplace=["x_residual"],
)
def fused_add_rms_norm_per_token_group_int8_quant(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    group_size: int,
    quant_epsilon: float = 1e-10,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """`fused_add_rms_norm_per_token_group_int8_quant` by one kernel; the new residual is in `x_residual`."""
    quantized, scales = call(
        FUSED_ADD_RMS_NORM_GROUP_QUANT_,
        x,
        x_residual,
        weight,
        epsilon,
        group_size,
        False,
        quant_epsilon,
        variance_size,
        torch.int8,
    )
    return quantized, scales, x_residual
