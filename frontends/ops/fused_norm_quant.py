"""RMS norms whose result is quantised: each op stands for a norm and the quantisation that alone reads its result.

It is the two parts one after the other, bit for bit: what is normalised has the dtype that `x` and the weight promote
to, and is rounded to it before it is quantised. Parameters are those of the parts, under the same names, but for the
`epsilon` of groups, which is `quant_epsilon`: `epsilon` is the norm's.
"""

import torch
from torch import Tensor

from vllm_ir.frontends.ops.norms import added_and_normalized, normalized
from vllm_ir.frontends.ops.quantization import (
    FP8_MAX,
    INT8_MAX,
    per_group_fp8,
    per_group_int8,
    per_token_fp8,
    per_token_int8,
    static_fp8,
    static_int8,
)
from vllm_ir.frontends.ops.registry import register_op


@register_op(row_wise=True)
def rms_norm_static_fp8_quant(
    x: Tensor, weight: Tensor | None, scale: Tensor, epsilon: float, variance_size: int | None = None
) -> Tensor:
    """`static_scaled_fp8_quant` of what `rms_norm` normalises.

    Args:
        x: any floating dtype, at least one dimension.
        weight: one-dimensional, as long as the last dimension of `x`; None leaves the product out.
        scale: float32, one element.
        epsilon: added to the mean of squares.
        variance_size: take the mean over that many leading elements of the last dimension; None: over all.

    Returns:
        The quantised rows.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "rms_norm_static_fp8_quant"
    return static_fp8(op, normalized(op, x, weight, epsilon, variance_size), scale)


@register_op(row_wise=True)
def rms_norm_static_int8_quant(
    x: Tensor, weight: Tensor | None, scale: Tensor, epsilon: float, variance_size: int | None = None
) -> Tensor:
    """`static_scaled_int8_quant` of what `rms_norm` normalises.

    Arguments and results are those of `rms_norm_static_fp8_quant`.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "rms_norm_static_int8_quant"
    return static_int8(op, normalized(op, x, weight, epsilon, variance_size), scale)


@register_op(row_wise=True)
def rms_norm_dynamic_per_token_fp8_quant(
    x: Tensor, weight: Tensor | None, epsilon: float, scale_ub: Tensor | None = None, variance_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """`dynamic_per_token_scaled_fp8_quant` of what `rms_norm` normalises.

    Args:
        x: any floating dtype, at least one dimension, the last of which is not empty.
        weight: one-dimensional, as long as the last dimension of `x`; None leaves the product out.
        epsilon: added to the mean of squares.
        scale_ub: float32, one element: bounds the rows' greatest magnitudes, and so the scales; None: no bound.
        variance_size: take the mean over that many leading elements of the last dimension; None: over all.

    Returns:
        The quantised rows, and the scales in float32, `[..., 1]`.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "rms_norm_dynamic_per_token_fp8_quant"
    return per_token_fp8(op, normalized(op, x, weight, epsilon, variance_size), scale_ub)


@register_op(row_wise=True)
def rms_norm_dynamic_per_token_int8_quant(
    x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """`dynamic_per_token_scaled_int8_quant` of what `rms_norm` normalises.

    Arguments and results are those of `rms_norm_dynamic_per_token_fp8_quant`, without `scale_ub`.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "rms_norm_dynamic_per_token_int8_quant"
    return per_token_int8(op, normalized(op, x, weight, epsilon, variance_size))


@register_op(row_wise=True)
def rms_norm_per_token_group_fp8_quant(
    x: Tensor,
    weight: Tensor | None,
    epsilon: float,
    group_size: int,
    use_ue8m0: bool = False,
    quant_epsilon: float = 1e-10,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """`per_token_group_fp8_quant` of what `rms_norm` normalises.

    Args:
        x: any floating dtype, at least one dimension.
        weight: one-dimensional, as long as the last dimension of `x`; None leaves the product out.
        epsilon: added to the mean of squares.
        group_size: elements of a group; divides the last dimension of `x`.
        use_ue8m0: round scales up to a power of two.
        quant_epsilon: positive; the least magnitude that a scale is made of.
        variance_size: take the mean over that many leading elements of the last dimension; None: over all.

    Returns:
        The quantised rows, and the scales in float32, `[..., last dimension / group_size]`.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "rms_norm_per_token_group_fp8_quant"
    return per_group_fp8(
        op, normalized(op, x, weight, epsilon, variance_size), group_size, use_ue8m0, quant_epsilon, "quant_epsilon"
    )


@register_op(row_wise=True)
def rms_norm_per_token_group_int8_quant(
    x: Tensor,
    weight: Tensor | None,
    epsilon: float,
    group_size: int,
    quant_epsilon: float = 1e-10,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """`per_token_group_int8_quant` of what `rms_norm` normalises.

    Arguments and results are those of `rms_norm_per_token_group_fp8_quant`, without `use_ue8m0`.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "rms_norm_per_token_group_int8_quant"
    return per_group_int8(
        op, normalized(op, x, weight, epsilon, variance_size), group_size, quant_epsilon, "quant_epsilon"
    )


@register_op(allow_inplace=True, reuses=[None, "x_residual"], row_wise=True)
def fused_add_rms_norm_static_fp8_quant(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    scale: Tensor,
    epsilon: float,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """`static_scaled_fp8_quant` of what `fused_add_rms_norm` normalises.

    `x_residual` is floating, of the shape of `x`; other arguments are those of `rms_norm_static_fp8_quant`.

    Returns:
        What the op without a residual gives, and behind it the new residual, in the dtype of `x`.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "fused_add_rms_norm_static_fp8_quant"
    normed, residual = added_and_normalized(op, x, x_residual, weight, epsilon, variance_size)
    return static_fp8(op, normed, scale), residual


@register_op(allow_inplace=True, reuses=[None, "x_residual"], row_wise=True)
def fused_add_rms_norm_static_int8_quant(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    scale: Tensor,
    epsilon: float,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """`static_scaled_int8_quant` of what `fused_add_rms_norm` normalises.

    `x_residual` is floating, of the shape of `x`; other arguments are those of `rms_norm_static_int8_quant`.

    Returns:
        What the op without a residual gives, and behind it the new residual, in the dtype of `x`.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "fused_add_rms_norm_static_int8_quant"
    normed, residual = added_and_normalized(op, x, x_residual, weight, epsilon, variance_size)
    return static_int8(op, normed, scale), residual


@register_op(allow_inplace=True, reuses=[None, None, "x_residual"], row_wise=True)
def fused_add_rms_norm_dynamic_per_token_fp8_quant(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    scale_ub: Tensor | None = None,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """`dynamic_per_token_scaled_fp8_quant` of what `fused_add_rms_norm` normalises.

    `x_residual` is floating, of the shape of `x`; other arguments are those of `rms_norm_dynamic_per_token_fp8_quant`.

    Returns:
        What the op without a residual gives, and behind it the new residual, in the dtype of `x`.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "fused_add_rms_norm_dynamic_per_token_fp8_quant"
    normed, residual = added_and_normalized(op, x, x_residual, weight, epsilon, variance_size)
    return *per_token_fp8(op, normed, scale_ub), residual


@register_op(allow_inplace=True, reuses=[None, None, "x_residual"], row_wise=True)
def fused_add_rms_norm_dynamic_per_token_int8_quant(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """`dynamic_per_token_scaled_int8_quant` of what `fused_add_rms_norm` normalises.

    `x_residual` is floating, of the shape of `x`; other arguments are those of `rms_norm_dynamic_per_token_int8_quant`.

    Returns:
        What the op without a residual gives, and behind it the new residual, in the dtype of `x`.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "fused_add_rms_norm_dynamic_per_token_int8_quant"
    normed, residual = added_and_normalized(op, x, x_residual, weight, epsilon, variance_size)
    return *per_token_int8(op, normed), residual


@register_op(allow_inplace=True, reuses=[None, None, "x_residual"], row_wise=True)
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
    """`per_token_group_fp8_quant` of what `fused_add_rms_norm` normalises.

    `x_residual` is floating, of the shape of `x`; other arguments are those of `rms_norm_per_token_group_fp8_quant`.

    Returns:
        What the op without a residual gives, and behind it the new residual, in the dtype of `x`.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "fused_add_rms_norm_per_token_group_fp8_quant"
    normed, residual = added_and_normalized(op, x, x_residual, weight, epsilon, variance_size)
    return *per_group_fp8(op, normed, group_size, use_ue8m0, quant_epsilon, "quant_epsilon"), residual


@register_op(allow_inplace=True, reuses=[None, None, "x_residual"], row_wise=True)
def fused_add_rms_norm_per_token_group_int8_quant(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    group_size: int,
    quant_epsilon: float = 1e-10,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """`per_token_group_int8_quant` of what `fused_add_rms_norm` normalises.

    `x_residual` is floating, of the shape of `x`; other arguments are those of `rms_norm_per_token_group_int8_quant`.

    Returns:
        What the op without a residual gives, and behind it the new residual, in the dtype of `x`.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "fused_add_rms_norm_per_token_group_int8_quant"
    normed, residual = added_and_normalized(op, x, x_residual, weight, epsilon, variance_size)
    return *per_group_int8(op, normed, group_size, quant_epsilon, "quant_epsilon"), residual


def _rows(num_tokens: int, hidden_size: int, dtype: torch.dtype, count: int) -> tuple[Tensor, ...]:
    """That many random activations, and a weight for them."""
    shapes = [(num_tokens, hidden_size)] * count
    return tuple(torch.randn(shape).to(dtype) for shape in (*shapes, (hidden_size,)))


def _scale(most: float) -> Tensor:
    """A scale with which a dtype, whose greatest number is `most`, holds numbers up to 1 or 3."""
    return (torch.rand(1) + 0.5) * (2 / most)


@rms_norm_static_fp8_quant.register_input_generator
def generate_rms_norm_static_fp8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16
) -> tuple[object, ...]:
    """Random arguments of `rms_norm_static_fp8_quant`; some elements are out of range."""
    return (*_rows(num_tokens, hidden_size, dtype, 1), _scale(FP8_MAX), 1e-6)


@rms_norm_static_int8_quant.register_input_generator
def generate_rms_norm_static_int8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16
) -> tuple[object, ...]:
    """Random arguments of `rms_norm_static_int8_quant`; some elements are out of range."""
    return (*_rows(num_tokens, hidden_size, dtype, 1), _scale(INT8_MAX), 1e-6)


@rms_norm_dynamic_per_token_fp8_quant.register_input_generator
def generate_rms_norm_dynamic_per_token_fp8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16, bounded: bool = False
) -> tuple[object, ...]:
    """Random arguments of `rms_norm_dynamic_per_token_fp8_quant`."""
    return (*_rows(num_tokens, hidden_size, dtype, 1), 1e-6, 3 * torch.rand(1) if bounded else None)


@rms_norm_dynamic_per_token_int8_quant.register_input_generator
def generate_rms_norm_dynamic_per_token_int8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16
) -> tuple[object, ...]:
    """Random arguments of `rms_norm_dynamic_per_token_int8_quant`."""
    return (*_rows(num_tokens, hidden_size, dtype, 1), 1e-6)


@rms_norm_per_token_group_fp8_quant.register_input_generator
def generate_rms_norm_per_token_group_fp8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16, group_size: int = 32
) -> tuple[object, ...]:
    """Random arguments of `rms_norm_per_token_group_fp8_quant`."""
    return (*_rows(num_tokens, hidden_size, dtype, 1), 1e-6, group_size)


@rms_norm_per_token_group_int8_quant.register_input_generator
def generate_rms_norm_per_token_group_int8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16, group_size: int = 32
) -> tuple[object, ...]:
    """Random arguments of `rms_norm_per_token_group_int8_quant`."""
    return (*_rows(num_tokens, hidden_size, dtype, 1), 1e-6, group_size)


@fused_add_rms_norm_static_fp8_quant.register_input_generator
def generate_fused_add_rms_norm_static_fp8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16
) -> tuple[object, ...]:
    """Random arguments of `fused_add_rms_norm_static_fp8_quant`; some elements are out of range."""
    return (*_rows(num_tokens, hidden_size, dtype, 2), _scale(FP8_MAX), 1e-6)


@fused_add_rms_norm_static_int8_quant.register_input_generator
def generate_fused_add_rms_norm_static_int8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16
) -> tuple[object, ...]:
    """Random arguments of `fused_add_rms_norm_static_int8_quant`; some elements are out of range."""
    return (*_rows(num_tokens, hidden_size, dtype, 2), _scale(INT8_MAX), 1e-6)


@fused_add_rms_norm_dynamic_per_token_fp8_quant.register_input_generator
def generate_fused_add_rms_norm_dynamic_per_token_fp8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16, bounded: bool = False
) -> tuple[object, ...]:
    """Random arguments of `fused_add_rms_norm_dynamic_per_token_fp8_quant`."""
    return (*_rows(num_tokens, hidden_size, dtype, 2), 1e-6, 3 * torch.rand(1) if bounded else None)


@fused_add_rms_norm_dynamic_per_token_int8_quant.register_input_generator
def generate_fused_add_rms_norm_dynamic_per_token_int8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16
) -> tuple[object, ...]:
    """Random arguments of `fused_add_rms_norm_dynamic_per_token_int8_quant`."""
    return (*_rows(num_tokens, hidden_size, dtype, 2), 1e-6)


@fused_add_rms_norm_per_token_group_fp8_quant.register_input_generator
def generate_fused_add_rms_norm_per_token_group_fp8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16, group_size: int = 32
) -> tuple[object, ...]:
    """Random arguments of `fused_add_rms_norm_per_token_group_fp8_quant`."""
    return (*_rows(num_tokens, hidden_size, dtype, 2), 1e-6, group_size)


@fused_add_rms_norm_per_token_group_int8_quant.register_input_generator
def generate_fused_add_rms_norm_per_token_group_int8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16, group_size: int = 32
) -> tuple[object, ...]:
    """Random arguments of `fused_add_rms_norm_per_token_group_int8_quant`."""
    return (*_rows(num_tokens, hidden_size, dtype, 2), 1e-6, group_size)
