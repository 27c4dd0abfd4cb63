"""Gated activations whose result is quantised: each op stands for both, one after the other, bit for bit.

The gated result is rounded to the dtype of `x` before it is quantised. Parameters are those of the parts, under the
same names.
"""

import torch
from torch import Tensor

from vllm_ir.frontends.ops.activations import gelu_gated, silu_gated
from vllm_ir.frontends.ops.quantization import FP8_MAX, per_group_fp8, per_token_fp8, static_fp8
from vllm_ir.frontends.ops.registry import register_op


@register_op(row_wise=True)
def silu_and_mul_static_fp8_quant(x: Tensor, scale: Tensor) -> Tensor:
    """`static_scaled_fp8_quant` of what `silu_and_mul` gives.

    Args:
        x: any floating dtype, a last dimension of even size `2 * d`.
        scale: float32, one element.

    Returns:
        The quantised rows, `[..., d]`.

    Raises:
        ValueError: an argument's dtype or shape does not fit.
    """
    op = "silu_and_mul_static_fp8_quant"
    return static_fp8(op, silu_gated(op, x), scale)


@register_op(row_wise=True)
def silu_and_mul_dynamic_per_token_fp8_quant(x: Tensor, scale_ub: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """`dynamic_per_token_scaled_fp8_quant` of what `silu_and_mul` gives.

    Args:
        x: any floating dtype, a last dimension of even size `2 * d`, not empty.
        scale_ub: float32, one element: bounds the rows' greatest magnitudes, and so the scales; None: no bound.

    Returns:
        The quantised rows, `[..., d]`, and the scales in float32, `[..., 1]`.

    Raises:
        ValueError: an argument's dtype or shape does not fit.
    """
    op = "silu_and_mul_dynamic_per_token_fp8_quant"
    return per_token_fp8(op, silu_gated(op, x), scale_ub)


@register_op(row_wise=True)
def silu_and_mul_per_token_group_fp8_quant(
    x: Tensor, group_size: int, use_ue8m0: bool = False, epsilon: float = 1e-10
) -> tuple[Tensor, Tensor]:
    """`per_token_group_fp8_quant` of what `silu_and_mul` gives.

    Args:
        x: any floating dtype, a last dimension of even size `2 * d`.
        group_size: elements of a group; divides `d`.
        use_ue8m0: round scales up to a power of two.
        epsilon: positive; the least magnitude that a scale is made of.

    Returns:
        The quantised rows, `[..., d]`, and the scales in float32, `[..., d / group_size]`.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "silu_and_mul_per_token_group_fp8_quant"
    return per_group_fp8(op, silu_gated(op, x), group_size, use_ue8m0, epsilon)


@register_op(row_wise=True)
def gelu_and_mul_static_fp8_quant(x: Tensor, scale: Tensor, approximate: str = "none") -> Tensor:
    """`static_scaled_fp8_quant` of what `gelu_and_mul` gives, in the form `approximate`: "none" or "tanh".

    Other arguments, and results, are those of `silu_and_mul_static_fp8_quant`.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "gelu_and_mul_static_fp8_quant"
    return static_fp8(op, gelu_gated(op, x, approximate), scale)


@register_op(row_wise=True)
def gelu_and_mul_dynamic_per_token_fp8_quant(
    x: Tensor, scale_ub: Tensor | None = None, approximate: str = "none"
) -> tuple[Tensor, Tensor]:
    """`dynamic_per_token_scaled_fp8_quant` of what `gelu_and_mul` gives, in the form `approximate`: "none" or "tanh".

    Other arguments, and results, are those of `silu_and_mul_dynamic_per_token_fp8_quant`.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "gelu_and_mul_dynamic_per_token_fp8_quant"
    return per_token_fp8(op, gelu_gated(op, x, approximate), scale_ub)


@register_op(row_wise=True)
def gelu_and_mul_per_token_group_fp8_quant(
    x: Tensor, group_size: int, use_ue8m0: bool = False, epsilon: float = 1e-10, approximate: str = "none"
) -> tuple[Tensor, Tensor]:
    """`per_token_group_fp8_quant` of what `gelu_and_mul` gives, in the form `approximate`: "none" or "tanh".

    Other arguments, and results, are those of `silu_and_mul_per_token_group_fp8_quant`.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "gelu_and_mul_per_token_group_fp8_quant"
    return per_group_fp8(op, gelu_gated(op, x, approximate), group_size, use_ue8m0, epsilon)


def _halves(num_tokens: int, hidden_size: int, dtype: torch.dtype) -> Tensor:
    """Random gates and what they multiply, of which some products are greater than 2."""
    return 2 * torch.randn(num_tokens, 2 * hidden_size).to(dtype)


@silu_and_mul_static_fp8_quant.register_input_generator
def generate_silu_and_mul_static_fp8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16
) -> tuple[object, ...]:
    """Random arguments, with a result of `hidden_size` columns; some elements are out of range."""
    return _halves(num_tokens, hidden_size, dtype), (torch.rand(1) + 0.5) * (2 / FP8_MAX)


@silu_and_mul_dynamic_per_token_fp8_quant.register_input_generator
def generate_silu_and_mul_dynamic_per_token_fp8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16, bounded: bool = False
) -> tuple[object, ...]:
    """Random arguments, with a result of `hidden_size` columns."""
    return _halves(num_tokens, hidden_size, dtype), 3 * torch.rand(1) if bounded else None


@silu_and_mul_per_token_group_fp8_quant.register_input_generator
def generate_silu_and_mul_per_token_group_fp8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16, group_size: int = 32
) -> tuple[object, ...]:
    """Random arguments, with a result of `hidden_size` columns."""
    return _halves(num_tokens, hidden_size, dtype), group_size


@gelu_and_mul_static_fp8_quant.register_input_generator
def generate_gelu_and_mul_static_fp8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16, approximate: str = "none"
) -> tuple[object, ...]:
    """Random arguments, with a result of `hidden_size` columns; some elements are out of range."""
    return _halves(num_tokens, hidden_size, dtype), (torch.rand(1) + 0.5) * (2 / FP8_MAX), approximate


@gelu_and_mul_dynamic_per_token_fp8_quant.register_input_generator
def generate_gelu_and_mul_dynamic_per_token_fp8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16, approximate: str = "none"
) -> tuple[object, ...]:
    """Random arguments, with a result of `hidden_size` columns."""
    return _halves(num_tokens, hidden_size, dtype), None, approximate


@gelu_and_mul_per_token_group_fp8_quant.register_input_generator
def generate_gelu_and_mul_per_token_group_fp8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16, group_size: int = 32
) -> tuple[object, ...]:
    """Random arguments, with a result of `hidden_size` columns."""
    return _halves(num_tokens, hidden_size, dtype), group_size
