"""Quantisation by provider `vllm_c`.

The kernels divide by scales where native definitions multiply with reciprocals, so that an element at a boundary of
rounding may fall to the other side; and their maxima and clamps pass over what is not a number, which comes out as a
number. To float8, they are supported on NVIDIA's devices alone: AMD's use another float8 format.

There is no `per_token_group_int8_quant`, since `_C::per_token_group_quant_int8` truncates where the definition rounds;
and of `per_token_group_fp8_quant`, not `use_ue8m0`, since the kernel's scales are at least 1e-10, whatever `epsilon`.
"""

import torch
from torch import Tensor

from vllm_ir.backends.kernels.external.layouts import (
    FLOATS,
    aligned,
    has_elements,
    has_even_rows,
    is_contiguous,
    known,
    strides_are_aligned,
)
from vllm_ir.backends.kernels.vllm_c.library import LIBRARY, PROVIDER, SUPPORTED, operator
from vllm_ir.frontends.fx.torch_objects import schema_of
from vllm_ir.frontends.ops import ops
from vllm_ir.frontends.ops.quantization import FP8, FP8_MAX
from vllm_ir.frontends.platforms import detect

FP8_SUPPORTED = SUPPORTED and not detect().is_rocm()

_GROUPS_OF_A_BLOCK = 16
_SHARED_MEMORY = 48 * 1024
"""What a block of threads has without asking for more; it holds its groups there."""


def _takes_x(x: Tensor) -> bool:
    return LIBRARY.takes(x) and x.dtype in FLOATS and x.dim() >= 1 and has_elements(x)


def _takes_rows(x: Tensor) -> bool:
    return _takes_x(x) and has_even_rows(x) and (is_contiguous(x) or strides_are_aligned(x))


def _takes_one_number(value: Tensor) -> bool:
    return LIBRARY.takes(value) and value.dtype is torch.float32 and known(value.numel() == 1)


def _takes_static_fp8(x: Tensor, scale: Tensor) -> bool:
    return _takes_rows(x) and _takes_one_number(scale)


@ops.static_scaled_fp8_quant.register_impl(PROVIDER, supported=FP8_SUPPORTED, supports_args=_takes_static_fp8)
def static_scaled_fp8_quant(x: Tensor, scale: Tensor) -> Tensor:
    """`_C::static_scaled_fp8_quant(Tensor! result, Tensor input, Tensor scale)`; newer releases have an optional shape
    of groups behind that, which one scale does not need.
    """
    result = x.new_empty(x.shape, dtype=FP8)
    operator("static_scaled_fp8_quant")(result, aligned(x), scale)
    return result


def _takes_tokens(x: Tensor, scale_ub: Tensor | None) -> bool:
    return _takes_rows(x) and (scale_ub is None or _takes_one_number(scale_ub))


@ops.dynamic_per_token_scaled_fp8_quant.register_impl(PROVIDER, supported=FP8_SUPPORTED, supports_args=_takes_tokens)
def dynamic_per_token_scaled_fp8_quant(x: Tensor, scale_ub: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """`_C::dynamic_per_token_scaled_fp8_quant(Tensor! result, Tensor input, Tensor! scale, Tensor? scale_ub)`."""
    result = x.new_empty(x.shape, dtype=FP8)
    scales = x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)
    operator("dynamic_per_token_scaled_fp8_quant")(result, aligned(x), scales, scale_ub)
    return result, scales


def _takes_fp8_groups(x: Tensor, group_size: int, use_ue8m0: bool, epsilon: float) -> bool:
    return (
        not use_ue8m0
        and epsilon > 0
        and _takes_x(x)
        and x.dim() == 2
        and is_contiguous(x)
        and known(group_size > 0)
        and known(group_size % 16 == 0)
        and known(group_size * x.element_size() * _GROUPS_OF_A_BLOCK <= _SHARED_MEMORY)
        and known(x.shape[1] % group_size == 0)
    )


@ops.per_token_group_fp8_quant.register_impl(PROVIDER, supported=FP8_SUPPORTED, supports_args=_takes_fp8_groups)
def per_token_group_fp8_quant(
    x: Tensor, group_size: int, use_ue8m0: bool = False, epsilon: float = 1e-10
) -> tuple[Tensor, Tensor]:
    """`_C::per_token_group_fp8_quant(Tensor input, Tensor! output_q, Tensor! output_s, int group_size, float eps, float
    fp8_min, float fp8_max, bool scale_ue8m0)`; newer releases have two bools behind that, which they do not use.
    """
    result = x.new_empty(x.shape, dtype=FP8)
    scales = x.new_empty((x.shape[0], x.shape[1] // group_size), dtype=torch.float32)
    quantize = operator("per_token_group_fp8_quant")
    unused = [False] * (len(schema_of(quantize).arguments) - 8)
    quantize(aligned(x), result, scales, group_size, epsilon, -FP8_MAX, FP8_MAX, use_ue8m0, *unused)
    return result, scales


def _takes_contiguous(x: Tensor) -> bool:
    return _takes_x(x) and is_contiguous(x)


def _takes_static_int8(x: Tensor, scale: Tensor) -> bool:
    return _takes_contiguous(x) and _takes_one_number(scale)


@ops.static_scaled_int8_quant.register_impl(PROVIDER, supported=SUPPORTED, supports_args=_takes_static_int8)
def static_scaled_int8_quant(x: Tensor, scale: Tensor) -> Tensor:
    """`_C::static_scaled_int8_quant(Tensor! result, Tensor input, Tensor scale, Tensor? azp)`, symmetric: no `azp`."""
    result = x.new_empty(x.shape, dtype=torch.int8)
    operator("static_scaled_int8_quant")(result, aligned(x), scale, None)
    return result


@ops.dynamic_per_token_scaled_int8_quant.register_impl(PROVIDER, supported=SUPPORTED, supports_args=_takes_contiguous)
def dynamic_per_token_scaled_int8_quant(x: Tensor) -> tuple[Tensor, Tensor]:
    """`_C::dynamic_scaled_int8_quant(Tensor! result, Tensor input, Tensor! scale, Tensor!? azp)`, symmetric: no `azp`;
    it gives each row a scale of its own.
    """
    result = x.new_empty(x.shape, dtype=torch.int8)
    scales = x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)
    operator("dynamic_scaled_int8_quant")(result, aligned(x), scales, None)
    return result, scales
