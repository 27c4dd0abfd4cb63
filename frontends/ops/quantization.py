"""Quantisation to 8-bit floats (float8_e4m3fn) and to int8, each with float32 scales.

The arithmetic is float32 whatever the input's dtype, float64 included: implementations for accelerators know no other.
An element is multiplied with the reciprocal of its scale, which is rounded first, and the product is clamped to the
range of the narrow dtype and rounded to nearest, ties to even. Both roundings are the only ones, and the maximum of
magnitudes is exact in any order, so that implementations can be held to these definitions bit for bit.

What is not a number stays so in a float8; among integers, which have no such value, it becomes 0, as in the saturating
conversions of processors. A magnitude that is not a number or infinite is the maximum of its row or group, and decides
about all of it.

The definitions are functions of the op's name, which errors state, so that fused ops are defined by them too.
"""

import torch
from torch import Tensor

from vllm_ir.frontends.ops.registry import register_op

FP8 = torch.float8_e4m3fn
FP8_MAX = torch.finfo(FP8).max
FP8_SMALLEST_SCALE = 1.0 / (FP8_MAX * 512.0)
"""The least scale of a token: 512 is the reciprocal of the least positive float8_e4m3fn."""
INT8_MIN, INT8_MAX = -128.0, 127.0


@register_op(batch_invariant=True, row_wise=True)
def static_scaled_fp8_quant(x: Tensor, scale: Tensor) -> Tensor:
    """`x / scale` as float8_e4m3fn, with one scale for all of `x`.

    Args:
        x: any floating dtype and shape.
        scale: float32, one element.

    Raises:
        ValueError: an argument's dtype or shape does not fit.
    """
    return static_fp8("static_scaled_fp8_quant", x, scale)


@register_op(batch_invariant=True, row_wise=True)
def dynamic_per_token_scaled_fp8_quant(x: Tensor, scale_ub: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Each row as float8_e4m3fn, with a scale that spreads it over the range of the dtype.

    The scale is the row's greatest magnitude, or `scale_ub` if that is less, divided by 448, the greatest
    float8_e4m3fn; but at least 1 / (448 * 512).

    Args:
        x: any floating dtype, at least one dimension, the last of which is not empty.
        scale_ub: float32, one element; None: no bound.

    Returns:
        The quantised rows, and the scales in float32, `[..., 1]`.

    Raises:
        ValueError: an argument's dtype or shape does not fit.
    """
    return per_token_fp8("dynamic_per_token_scaled_fp8_quant", x, scale_ub)


@register_op(batch_invariant=True, row_wise=True)
def per_token_group_fp8_quant(
    x: Tensor, group_size: int, use_ue8m0: bool = False, epsilon: float = 1e-10
) -> tuple[Tensor, Tensor]:
    """Each group of neighbours in a row as float8_e4m3fn, with a scale of its own.

    The scale is the group's greatest magnitude, or `epsilon` if that is more, divided by 448.

    Args:
        x: any floating dtype, at least one dimension.
        group_size: elements of a group; divides the last dimension of `x`.
        use_ue8m0: round scales up to a power of two (from 2^-126), which a float8_e8m0fnu can hold.
        epsilon: positive.

    Returns:
        The quantised groups in the shape of `x`, and the scales in float32, `[..., last dimension / group_size]`.

    Raises:
        ValueError: the dtype or shape of `x` does not fit, or `group_size` or `epsilon` is not positive.
    """
    return per_group_fp8("per_token_group_fp8_quant", x, group_size, use_ue8m0, epsilon)


@register_op(batch_invariant=True, row_wise=True)
def static_scaled_int8_quant(x: Tensor, scale: Tensor) -> Tensor:
    """`x / scale` as int8, with one scale for all of `x`; arguments and errors are those of `static_scaled_fp8_quant`.

    Raises:
        ValueError: an argument's dtype or shape does not fit.
    """
    return static_int8("static_scaled_int8_quant", x, scale)


@register_op(batch_invariant=True, row_wise=True)
def dynamic_per_token_scaled_int8_quant(x: Tensor) -> tuple[Tensor, Tensor]:
    """Each row as int8, with its greatest magnitude divided by 127 as scale: 0 for a row of zeros, which stay zeros.

    Args:
        x: any floating dtype, at least one dimension, the last of which is not empty.

    Returns:
        The quantised rows, and the scales in float32, `[..., 1]`.

    Raises:
        ValueError: the dtype or shape of `x` does not fit.
    """
    return per_token_int8("dynamic_per_token_scaled_int8_quant", x)


@register_op(batch_invariant=True, row_wise=True)
def per_token_group_int8_quant(x: Tensor, group_size: int, epsilon: float = 1e-10) -> tuple[Tensor, Tensor]:
    """Each group of neighbours in a row as int8, with a scale of its own.

    The scale is the group's greatest magnitude, or `epsilon` if that is more, divided by 127. Arguments, results and
    errors are those of `per_token_group_fp8_quant`.

    Raises:
        ValueError: the dtype or shape of `x` does not fit, or `group_size` or `epsilon` is not positive.
    """
    return per_group_int8("per_token_group_int8_quant", x, group_size, epsilon)


def static_fp8(op: str, x: Tensor, scale: Tensor, scale_name: str = "scale") -> Tensor:
    """The definition of `static_scaled_fp8_quant`; errors name `op`, and the scale as its parameter is called."""
    _check_floating(op, x)
    _check_one_number(op, scale_name, scale)
    return _as_fp8(x.float(), scale.reshape(()))


def per_token_fp8(op: str, x: Tensor, scale_ub: Tensor | None) -> tuple[Tensor, Tensor]:
    """The definition of `dynamic_per_token_scaled_fp8_quant`; errors name `op`."""
    _check_rows(op, x)
    values = x.float()
    most = values.abs().amax(-1, keepdim=True)
    if scale_ub is not None:
        _check_one_number(op, "scale_ub", scale_ub)
        most = torch.minimum(most, scale_ub.reshape(()))
    scales = (most / FP8_MAX).clamp(min=FP8_SMALLEST_SCALE)
    return _as_fp8(values, scales), scales


def per_group_fp8(
    op: str, x: Tensor, group_size: int, use_ue8m0: bool, epsilon: float, epsilon_name: str = "epsilon"
) -> tuple[Tensor, Tensor]:
    """The definition of `per_token_group_fp8_quant`; errors name `op`, and epsilon as its parameter is called."""
    groups = _groups(op, x, group_size, epsilon, epsilon_name)
    scales = groups.abs().amax(-1, keepdim=True).clamp(min=epsilon) / FP8_MAX
    if use_ue8m0:
        scales = _rounded_up_to_power(scales)
    return _as_fp8(groups, scales).flatten(-2), scales.squeeze(-1)


def static_int8(op: str, x: Tensor, scale: Tensor) -> Tensor:
    """The definition of `static_scaled_int8_quant`; errors name `op`."""
    _check_floating(op, x)
    _check_one_number(op, "scale", scale)
    return _as_int8(x.float(), scale.reshape(()))


def per_token_int8(op: str, x: Tensor) -> tuple[Tensor, Tensor]:
    """The definition of `dynamic_per_token_scaled_int8_quant`; errors name `op`."""
    _check_rows(op, x)
    values = x.float()
    scales = values.abs().amax(-1, keepdim=True) / INT8_MAX
    return _as_int8(values, scales), scales


def per_group_int8(
    op: str, x: Tensor, group_size: int, epsilon: float, epsilon_name: str = "epsilon"
) -> tuple[Tensor, Tensor]:
    """The definition of `per_token_group_int8_quant`; errors name `op`, and epsilon as its parameter is called."""
    groups = _groups(op, x, group_size, epsilon, epsilon_name)
    scales = groups.abs().amax(-1, keepdim=True).clamp(min=epsilon) / INT8_MAX
    return _as_int8(groups, scales).flatten(-2), scales.squeeze(-1)


def _as_fp8(values: Tensor, scale: Tensor) -> Tensor:
    # The range first: without it, how the conversion treats what lies outside is the device's affair.
    return (values * scale.reciprocal()).clamp(-FP8_MAX, FP8_MAX).to(FP8)


def _as_int8(values: Tensor, scale: Tensor) -> Tensor:
    quotients = values * scale.reciprocal()
    return quotients.masked_fill(quotients.isnan(), 0.0).round().clamp(INT8_MIN, INT8_MAX).to(torch.int8)


def _rounded_up_to_power(scales: Tensor) -> Tensor:
    """The least power of two that is not less than each of some positive numbers; infinities and NaN as they are."""
    # In the bits: whatever the mantissa holds carries over into the exponent. Logarithms are not exact.
    bits = (scales.view(torch.int32) + 0x7FFFFF) & -0x800000
    return torch.where(scales.isnan(), scales, bits.view(torch.float32))


def _groups(op: str, x: Tensor, group_size: int, epsilon: float, epsilon_name: str) -> Tensor:
    """`x` in float32, its last dimension split into groups."""
    if group_size < 1:
        raise ValueError(f"vllm_ir.{op}: group_size must be positive, got {group_size}")
    if not epsilon > 0:
        raise ValueError(f"vllm_ir.{op}: {epsilon_name} must be positive, got {epsilon}")
    _check_floating(op, x)
    if x.dim() == 0 or x.shape[-1] % group_size:
        raise ValueError(
            f"vllm_ir.{op}: the last dimension of x must be a multiple of group_size {group_size}, "
            f"got shape {list(x.shape)}"
        )
    return x.float().view((*x.shape[:-1], x.shape[-1] // group_size, group_size))


def _check_floating(op: str, x: Tensor) -> None:
    if not x.is_floating_point():
        raise ValueError(f"vllm_ir.{op}: x must be floating, got {x.dtype} of shape {list(x.shape)}")


def _check_rows(op: str, x: Tensor) -> None:
    if not x.is_floating_point() or x.dim() == 0 or x.shape[-1] == 0:
        raise ValueError(
            f"vllm_ir.{op}: x must be floating with a last dimension that is not empty, "
            f"got {x.dtype} of shape {list(x.shape)}"
        )


def _check_one_number(op: str, name: str, value: Tensor) -> None:
    if value.dtype is not torch.float32 or value.numel() != 1:
        raise ValueError(
            f"vllm_ir.{op}: {name} must be float32 with one element, got {value.dtype} of shape {list(value.shape)}"
        )


@static_scaled_fp8_quant.register_input_generator
def generate_static_scaled_fp8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16
) -> tuple[object, ...]:
    """Random arguments of `static_scaled_fp8_quant`; some elements are out of range."""
    return torch.randn(num_tokens, hidden_size).to(dtype), (torch.rand(1) + 0.5) * (2 / FP8_MAX)


@dynamic_per_token_scaled_fp8_quant.register_input_generator
def generate_dynamic_per_token_scaled_fp8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16, bounded: bool = False
) -> tuple[object, ...]:
    """Random arguments of `dynamic_per_token_scaled_fp8_quant`; `bounded`: with a `scale_ub`, less than some rows'."""
    x = torch.randn(num_tokens, hidden_size).to(dtype)
    return x, (torch.rand(1) + 1.5 if bounded else None)


@per_token_group_fp8_quant.register_input_generator
def generate_per_token_group_fp8_quant_inputs(
    num_tokens: int = 32,
    hidden_size: int = 128,
    dtype: torch.dtype = torch.bfloat16,
    group_size: int = 64,
    use_ue8m0: bool = False,
    epsilon: float = 1e-10,
) -> tuple[object, ...]:
    """Random arguments of `per_token_group_fp8_quant`."""
    return torch.randn(num_tokens, hidden_size).to(dtype), group_size, use_ue8m0, epsilon


@static_scaled_int8_quant.register_input_generator
def generate_static_scaled_int8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16
) -> tuple[object, ...]:
    """Random arguments of `static_scaled_int8_quant`; some elements are out of range."""
    return torch.randn(num_tokens, hidden_size).to(dtype), (torch.rand(1) + 0.5) * (2 / INT8_MAX)


@dynamic_per_token_scaled_int8_quant.register_input_generator
def generate_dynamic_per_token_scaled_int8_quant_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16
) -> tuple[object, ...]:
    """Random arguments of `dynamic_per_token_scaled_int8_quant`."""
    return (torch.randn(num_tokens, hidden_size).to(dtype),)


@per_token_group_int8_quant.register_input_generator
def generate_per_token_group_int8_quant_inputs(
    num_tokens: int = 32,
    hidden_size: int = 128,
    dtype: torch.dtype = torch.bfloat16,
    group_size: int = 64,
    epsilon: float = 1e-10,
) -> tuple[object, ...]:
    """Random arguments of `per_token_group_int8_quant`."""
    return torch.randn(num_tokens, hidden_size).to(dtype), group_size, epsilon
