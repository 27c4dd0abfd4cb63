"""RMS norms whose result is quantised twice, as two projections with other scales or groups want it.

Each op is its parts one after the other, bit for bit. Parameters of the second quantisation begin with `other_`; the
rest is as for the norms that are quantised once.
"""

import torch
from torch import Tensor

from vllm_ir.frontends.ops.norms import (
    added_and_normalized,
    generate_fused_add_rms_norm_inputs,
    generate_rms_norm_inputs,
    normalized,
)
from vllm_ir.frontends.ops.quantization import FP8_MAX, per_group_fp8, static_fp8
from vllm_ir.frontends.ops.registry import register_op


@register_op(row_wise=True)
def rms_norm_double_static_fp8_quant(
    x: Tensor,
    weight: Tensor | None,
    scale: Tensor,
    other_scale: Tensor,
    epsilon: float,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """What `rms_norm` normalises, through `static_scaled_fp8_quant` with either scale.

    `other_scale` is like `scale`; arguments are those of `rms_norm_static_fp8_quant`.

    Returns:
        The rows quantised with `scale`, and with `other_scale`.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "rms_norm_double_static_fp8_quant"
    return _static(op, normalized(op, x, weight, epsilon, variance_size), scale, other_scale)


@register_op(allow_inplace=True, reuses=[None, None, "x_residual"], row_wise=True)
def fused_add_rms_norm_double_static_fp8_quant(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    scale: Tensor,
    other_scale: Tensor,
    epsilon: float,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """What `fused_add_rms_norm` normalises, through `static_scaled_fp8_quant` with either scale.

    `x_residual` is floating, of the shape of `x`; other arguments are those of `rms_norm_double_static_fp8_quant`.

    Returns:
        What the op without a residual gives, and behind it the new residual, in the dtype of `x`.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "fused_add_rms_norm_double_static_fp8_quant"
    normed, residual = added_and_normalized(op, x, x_residual, weight, epsilon, variance_size)
    return *_static(op, normed, scale, other_scale), residual


@register_op(row_wise=True)
def rms_norm_double_per_token_group_fp8_quant(
    x: Tensor,
    weight: Tensor | None,
    epsilon: float,
    group_size: int,
    other_group_size: int,
    use_ue8m0: bool = False,
    other_use_ue8m0: bool = False,
    quant_epsilon: float = 1e-10,
    other_quant_epsilon: float = 1e-10,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What `rms_norm` normalises, through `per_token_group_fp8_quant` with either set of parameters.

    `other_group_size`, `other_use_ue8m0` and `other_quant_epsilon` are like those without `other_`; arguments are those
    of `rms_norm_per_token_group_fp8_quant`.

    Returns:
        The quantised rows and their scales, and once more of the second quantisation.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "rms_norm_double_per_token_group_fp8_quant"
    normed = normalized(op, x, weight, epsilon, variance_size)
    return (
        *per_group_fp8(op, normed, group_size, use_ue8m0, quant_epsilon, "quant_epsilon"),
        *per_group_fp8(op, normed, other_group_size, other_use_ue8m0, other_quant_epsilon, "other_quant_epsilon"),
    )


@register_op(allow_inplace=True, reuses=[None, None, None, None, "x_residual"], row_wise=True)
def fused_add_rms_norm_double_per_token_group_fp8_quant(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    group_size: int,
    other_group_size: int,
    use_ue8m0: bool = False,
    other_use_ue8m0: bool = False,
    quant_epsilon: float = 1e-10,
    other_quant_epsilon: float = 1e-10,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """What `fused_add_rms_norm` normalises, through `per_token_group_fp8_quant` with either set of parameters.

    `x_residual` is floating, of the shape of `x`; other arguments are those of
    `rms_norm_double_per_token_group_fp8_quant`.

    Returns:
        What the op without a residual gives, and behind it the new residual, in the dtype of `x`.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "fused_add_rms_norm_double_per_token_group_fp8_quant"
    normed, residual = added_and_normalized(op, x, x_residual, weight, epsilon, variance_size)
    return (
        *per_group_fp8(op, normed, group_size, use_ue8m0, quant_epsilon, "quant_epsilon"),
        *per_group_fp8(op, normed, other_group_size, other_use_ue8m0, other_quant_epsilon, "other_quant_epsilon"),
        residual,
    )


def _static(op: str, normed: Tensor, scale: Tensor, other_scale: Tensor) -> tuple[Tensor, Tensor]:
    return static_fp8(op, normed, scale), static_fp8(op, normed, other_scale, "other_scale")


def _scales() -> tuple[Tensor, Tensor]:
    """Two scales with which a float8 holds numbers up to 1 or 3."""
    first, second = ((torch.rand(1) + 0.5) * (2 / FP8_MAX) for _ in range(2))
    return first, second


@rms_norm_double_static_fp8_quant.register_input_generator
def generate_rms_norm_double_static_fp8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16
) -> tuple[object, ...]:
    """Random arguments of `rms_norm_double_static_fp8_quant`; some elements are out of range."""
    *rows, epsilon = generate_rms_norm_inputs(num_tokens, hidden_size, dtype)
    return *rows, *_scales(), epsilon


@fused_add_rms_norm_double_static_fp8_quant.register_input_generator
def generate_fused_add_rms_norm_double_static_fp8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16
) -> tuple[object, ...]:
    """Random arguments of `fused_add_rms_norm_double_static_fp8_quant`; some elements are out of range."""
    *rows, epsilon = generate_fused_add_rms_norm_inputs(num_tokens, hidden_size, dtype)
    return *rows, *_scales(), epsilon


@rms_norm_double_per_token_group_fp8_quant.register_input_generator
def generate_rms_norm_double_per_token_group_fp8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16, group_size: int = 32
) -> tuple[object, ...]:
    """Random arguments of `rms_norm_double_per_token_group_fp8_quant`; the second groups are half as long."""
    return *generate_rms_norm_inputs(num_tokens, hidden_size, dtype), group_size, group_size // 2


@fused_add_rms_norm_double_per_token_group_fp8_quant.register_input_generator
def generate_fused_add_rms_norm_double_per_token_group_fp8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16, group_size: int = 32
) -> tuple[object, ...]:
    """Random arguments of `fused_add_rms_norm_double_per_token_group_fp8_quant`; the second groups are half as long."""
    return *generate_fused_add_rms_norm_inputs(num_tokens, hidden_size, dtype), group_size, group_size // 2
