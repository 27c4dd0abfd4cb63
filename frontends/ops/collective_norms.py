"""RMS norms of sums over ranks: each op stands for `all_reduce` and the norm that alone reads its result.

They are their parts one after the other, bit for bit, as in `fused_norm_quant.py`: a sum of the dtype of `x`, rounded
as the group's backend rounds it, then the norm, and then the quantisation if there is one. `group_name` and what all
ranks have to do at a call are as in `collectives.py`. The residual, weights and scales are the same on all ranks.

With `rounded_last` the norm is Gemma's: values that are rounded to the dtype of `x` are normalised and weighted in
float32, and the product is rounded to the dtype of `x`.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from vllm_ir.frontends.ops.collectives import summed
from vllm_ir.frontends.ops.fused_norm_quant import fused_add_rms_norm_static_fp8_quant, rms_norm_static_fp8_quant
from vllm_ir.frontends.ops.norms import added_and_normalized, fused_add_rms_norm, normalized, rms_norm
from vllm_ir.frontends.ops.quantization import FP8_MAX, static_fp8
from vllm_ir.frontends.ops.registry import register_op


@register_op(allow_inplace=True)
def all_reduce_rms_norm(
    x: Tensor,
    weight: Tensor | None,
    epsilon: float,
    group_name: str,
    variance_size: int | None = None,
    rounded_last: bool = False,
) -> Tensor:
    """`rms_norm` of the sum of what all ranks give as `x`, on every rank.

    Args:
        x: any floating dtype that the group's backend adds up, at least one dimension.
        weight: one-dimensional, as long as the last dimension of `x`; None leaves the product out.
        epsilon: added to the mean of squares.
        group_name: the group.
        variance_size: take the mean over that many leading elements of the last dimension; None: over all.
        rounded_last: see above.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op, total = "all_reduce_rms_norm", summed(x, group_name)
    if rounded_last:
        return normalized(op, total.float(), weight, epsilon, variance_size).to(x.dtype)
    return normalized(op, total, weight, epsilon, variance_size)


@register_op(allow_inplace=True)
def all_reduce_fused_add_rms_norm(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    group_name: str,
    variance_size: int | None = None,
    rounded_last: bool = False,
) -> tuple[Tensor, Tensor]:
    """`fused_add_rms_norm` of the sum of what all ranks give as `x`, on every rank.

    `x_residual` is floating, of the shape of `x`; other arguments are those of `all_reduce_rms_norm`.

    Returns:
        The normalised values, and the new residual in the dtype of `x`.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "all_reduce_fused_add_rms_norm"
    normed, residual = added_and_normalized(op, summed(x, group_name), x_residual, weight, epsilon, variance_size)
    if rounded_last:
        normed = normalized(op, residual.float(), weight, epsilon, variance_size).to(x.dtype)
    return normed, residual


@register_op(allow_inplace=True, reuses=[None])
def all_reduce_rms_norm_static_fp8_quant(
    x: Tensor, weight: Tensor | None, scale: Tensor, epsilon: float, group_name: str, variance_size: int | None = None
) -> Tensor:
    """`static_scaled_fp8_quant` of what `all_reduce_rms_norm` normalises.

    `scale` is float32, one element; other arguments are those of `all_reduce_rms_norm`.

    Returns:
        The quantised rows.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "all_reduce_rms_norm_static_fp8_quant"
    return static_fp8(op, normalized(op, summed(x, group_name), weight, epsilon, variance_size), scale)


@register_op(allow_inplace=True, reuses=[None, "x_residual"])
def all_reduce_fused_add_rms_norm_static_fp8_quant(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    scale: Tensor,
    epsilon: float,
    group_name: str,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """`static_scaled_fp8_quant` of what `all_reduce_fused_add_rms_norm` normalises.

    `scale` is float32, one element; other arguments are those of `all_reduce_fused_add_rms_norm`.

    Returns:
        The quantised rows, and the new residual in the dtype of `x`.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "all_reduce_fused_add_rms_norm_static_fp8_quant"
    normed, residual = added_and_normalized(op, summed(x, group_name), x_residual, weight, epsilon, variance_size)
    return static_fp8(op, normed, scale), residual


def _norm(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None, rounded_last: bool) -> Tensor:
    if rounded_last:
        return rms_norm(x.float(), weight, epsilon, variance_size).to(x.dtype)
    return rms_norm(x, weight, epsilon, variance_size)


def _added_norm(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    variance_size: int | None,
    rounded_last: bool,
) -> tuple[Tensor, Tensor]:
    if rounded_last:
        residual = (x.float() + x_residual.float()).to(x.dtype)
        return _norm(residual, weight, epsilon, variance_size, rounded_last), residual
    return fused_add_rms_norm(x, x_residual, weight, epsilon, variance_size)


BEHIND_SUM: Mapping[str, Callable[..., object]] = MappingProxyType(
    {
        all_reduce_rms_norm.name: _norm,
        all_reduce_fused_add_rms_norm.name: _added_norm,
        all_reduce_rms_norm_static_fp8_quant.name: rms_norm_static_fp8_quant,
        all_reduce_fused_add_rms_norm_static_fp8_quant.name: fused_add_rms_norm_static_fp8_quant,
    }
)
"""What each op of this file does to the sum, which is given as `x`; the other arguments are given by name."""


def _rows(num_tokens: int, hidden_size: int, dtype: torch.dtype, count: int) -> tuple[Tensor, ...]:
    """That many random activations, and a weight for them."""
    shapes = [(num_tokens, hidden_size)] * count
    return tuple(torch.randn(shape).to(dtype) for shape in (*shapes, (hidden_size,)))


def _scale() -> Tensor:
    """A scale with which fp8 holds numbers up to 1 or 3."""
    return (torch.rand(1) + 0.5) * (2 / FP8_MAX)


@all_reduce_rms_norm.register_input_generator
def generate_all_reduce_rms_norm_inputs(
    num_tokens: int = 16, hidden_size: int = 64, group_name: str = "0", dtype: torch.dtype = torch.bfloat16
) -> tuple[object, ...]:
    """Random arguments of `all_reduce_rms_norm`; the default group of a process has the name "0"."""
    return (*_rows(num_tokens, hidden_size, dtype, 1), 1e-6, group_name)


@all_reduce_fused_add_rms_norm.register_input_generator
def generate_all_reduce_fused_add_rms_norm_inputs(
    num_tokens: int = 16, hidden_size: int = 64, group_name: str = "0", dtype: torch.dtype = torch.bfloat16
) -> tuple[object, ...]:
    """Random arguments of `all_reduce_fused_add_rms_norm`."""
    return (*_rows(num_tokens, hidden_size, dtype, 2), 1e-6, group_name)


@all_reduce_rms_norm_static_fp8_quant.register_input_generator
def generate_all_reduce_rms_norm_static_fp8_quant_inputs(
    num_tokens: int = 16, hidden_size: int = 64, group_name: str = "0", dtype: torch.dtype = torch.bfloat16
) -> tuple[object, ...]:
    """Random arguments of `all_reduce_rms_norm_static_fp8_quant`; some elements are out of range."""
    return (*_rows(num_tokens, hidden_size, dtype, 1), _scale(), 1e-6, group_name)


@all_reduce_fused_add_rms_norm_static_fp8_quant.register_input_generator
def generate_all_reduce_fused_add_rms_norm_static_fp8_quant_inputs(
    num_tokens: int = 16, hidden_size: int = 64, group_name: str = "0", dtype: torch.dtype = torch.bfloat16
) -> tuple[object, ...]:
    """Random arguments of `all_reduce_fused_add_rms_norm_static_fp8_quant`; some elements are out of range."""
    return (*_rows(num_tokens, hidden_size, dtype, 2), _scale(), 1e-6, group_name)
