"""Gated RMS norms whose result is quantised: each op stands for both, one after the other, bit for bit."""

import torch
from torch import Tensor

from vllm_ir.frontends.ops.gated_norm import generate_gated_rms_norm_inputs, normalized_and_gated
from vllm_ir.frontends.ops.quantization import FP8_MAX, per_group_fp8, static_fp8
from vllm_ir.frontends.ops.registry import register_op


@register_op(activations=["x", "gate"], row_wise=True)
def gated_rms_norm_static_fp8_quant(
    x: Tensor, gate: Tensor, weight: Tensor | None, scale: Tensor, epsilon: float
) -> Tensor:
    """`static_scaled_fp8_quant` of what `gated_rms_norm` gives.

    `scale` is float32, one element; other arguments are those of `gated_rms_norm`.

    Returns:
        The quantised rows.

    Raises:
        ValueError: an argument's dtype or shape does not fit.
    """
    op = "gated_rms_norm_static_fp8_quant"
    return static_fp8(op, normalized_and_gated(op, x, gate, weight, epsilon), scale)


@register_op(activations=["x", "gate"], row_wise=True)
def gated_rms_norm_per_token_group_fp8_quant(
    x: Tensor,
    gate: Tensor,
    weight: Tensor | None,
    epsilon: float,
    group_size: int,
    use_ue8m0: bool = False,
    quant_epsilon: float = 1e-10,
) -> tuple[Tensor, Tensor]:
    """`per_token_group_fp8_quant` of what `gated_rms_norm` gives.

    Args:
        x: any floating dtype, at least one dimension.
        gate: any floating dtype, the shape of `x`.
        weight: one-dimensional, as long as the last dimension of `x`; None leaves the product out.
        epsilon: added to the mean of squares.
        group_size: elements of a group; divides the last dimension of `x`.
        use_ue8m0: round scales up to a power of two.
        quant_epsilon: positive; the least magnitude that a scale is made of.

    Returns:
        The quantised rows, and the scales in float32, `[..., last dimension / group_size]`.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "gated_rms_norm_per_token_group_fp8_quant"
    gated = normalized_and_gated(op, x, gate, weight, epsilon)
    return per_group_fp8(op, gated, group_size, use_ue8m0, quant_epsilon, "quant_epsilon")


@gated_rms_norm_static_fp8_quant.register_input_generator
def generate_gated_rms_norm_static_fp8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16
) -> tuple[object, ...]:
    """Random arguments of `gated_rms_norm_static_fp8_quant`; some elements are out of range."""
    *rows, epsilon = generate_gated_rms_norm_inputs(num_tokens, hidden_size, dtype)
    return *rows, (torch.rand(1) + 0.5) * (2 / FP8_MAX), epsilon


@gated_rms_norm_per_token_group_fp8_quant.register_input_generator
def generate_gated_rms_norm_per_token_group_fp8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16, group_size: int = 32
) -> tuple[object, ...]:
    """Random arguments of `gated_rms_norm_per_token_group_fp8_quant`."""
    return *generate_gated_rms_norm_inputs(num_tokens, hidden_size, dtype), group_size
