"""Provider `cpu` of norms of sums over ranks: the kernels of the parts, one after the other.

The sum is made in the memory of `x`. They take what the kernels of all parts take, so that a program whose parts ran by
these does so after a fusion too; norms that are rounded last are left to the native definition.
"""

from torch import Tensor

from vllm_ir.backends.kernels.cpu.build import KERNEL_FILES
from vllm_ir.backends.kernels.cpu.collectives import ALL_REDUCE_, takes_all_reduce
from vllm_ir.backends.kernels.cpu.collectives import SUPPORTED as COLLECTIVES_SUPPORTED
from vllm_ir.backends.kernels.cpu.fused_norm_quant import FUSED_ADD_RMS_NORM_STATIC_QUANT_, RMS_NORM_STATIC_QUANT
from vllm_ir.backends.kernels.cpu.library import FUSED_ADD_RMS_NORM_, RMS_NORM, call
from vllm_ir.backends.kernels.cpu.providers import PROVIDER, takes_fused_add_rms_norm, takes_norm
from vllm_ir.backends.kernels.cpu.providers import SUPPORTED as KERNELS_SUPPORTED
from vllm_ir.backends.kernels.cpu.quantization import takes_one_number
from vllm_ir.frontends.ops import ops
from vllm_ir.frontends.ops.quantization import FP8

SUPPORTED = COLLECTIVES_SUPPORTED and KERNELS_SUPPORTED


def _takes_norm(
    x: Tensor,
    weight: Tensor | None,
    _epsilon: float,
    group_name: str,
    variance_size: int | None,
    rounded_last: bool,
) -> bool:
    return not rounded_last and takes_norm(x, weight, variance_size) and takes_all_reduce(x, group_name)


@ops.all_reduce_rms_norm.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, supports_args=_takes_norm, inplace=True
)
def all_reduce_rms_norm(
    x: Tensor,
    weight: Tensor | None,
    epsilon: float,
    group_name: str,
    variance_size: int | None = None,
    rounded_last: bool = False,  # noqa: ARG001  # never, as checked above
) -> Tensor:
    """`all_reduce_rms_norm` into a new tensor, by two calls."""
    call(ALL_REDUCE_, x, group_name)
    (result,) = call(RMS_NORM, x, weight, epsilon, variance_size)
    return result


def _takes_added_norm(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    group_name: str,
    variance_size: int | None,
    rounded_last: bool,
) -> bool:
    if rounded_last or not takes_fused_add_rms_norm(x, x_residual, weight, epsilon, variance_size):
        return False
    return takes_all_reduce(x, group_name)


@ops.all_reduce_fused_add_rms_norm.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, supports_args=_takes_added_norm, inplace=True
)
def all_reduce_fused_add_rms_norm(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    group_name: str,
    variance_size: int | None = None,
    rounded_last: bool = False,  # noqa: ARG001  # never, as checked above
) -> tuple[Tensor, Tensor]:
    """`all_reduce_fused_add_rms_norm` in place of `x` and `x_residual`, by two calls."""
    call(ALL_REDUCE_, x, group_name)
    FUSED_ADD_RMS_NORM_(x, x_residual, weight, epsilon, variance_size)
    return x, x_residual


def _takes_quant(
    x: Tensor, weight: Tensor | None, scale: Tensor, epsilon: float, group_name: str, variance_size: int | None
) -> bool:
    return takes_one_number(scale) and _takes_norm(x, weight, epsilon, group_name, variance_size, False)


@ops.all_reduce_rms_norm_static_fp8_quant.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, supports_args=_takes_quant, inplace=True
)
def all_reduce_rms_norm_static_fp8_quant(
    x: Tensor, weight: Tensor | None, scale: Tensor, epsilon: float, group_name: str, variance_size: int | None = None
) -> Tensor:
    """`all_reduce_rms_norm_static_fp8_quant` by two calls."""
    call(ALL_REDUCE_, x, group_name)
    (quantized,) = call(RMS_NORM_STATIC_QUANT, x, weight, scale, epsilon, variance_size, FP8)
    return quantized


def _takes_added_quant(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    scale: Tensor,
    epsilon: float,
    group_name: str,
    variance_size: int | None,
) -> bool:
    if not takes_one_number(scale):
        return False
    return _takes_added_norm(x, x_residual, weight, epsilon, group_name, variance_size, False)


@ops.all_reduce_fused_add_rms_norm_static_fp8_quant.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, supports_args=_takes_added_quant, inplace=True
)
def all_reduce_fused_add_rms_norm_static_fp8_quant(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    scale: Tensor,
    epsilon: float,
    group_name: str,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """`all_reduce_fused_add_rms_norm_static_fp8_quant` by two calls; the new residual is in `x_residual`."""
    call(ALL_REDUCE_, x, group_name)
    (quantized,) = call(FUSED_ADD_RMS_NORM_STATIC_QUANT_, x, x_residual, weight, scale, epsilon, variance_size, FP8)
    return quantized, x_residual
