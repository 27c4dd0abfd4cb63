"""Root-mean-square normalisation.

The arithmetic is float32 whatever the input's dtype, float64 included: implementations for accelerators know no other.
The normalised values are rounded to the input's dtype before the weight is applied, and the product has the dtype that
torch promotes the two to: a bfloat16 input with a float32 weight gives float32.

The definitions are functions of the op's name, which errors state, so that fused ops are defined by them too.
"""

import torch
from torch import Tensor

from vllm_ir.frontends.ops.registry import register_op


@register_op(allow_inplace=True, row_wise=True)
def rms_norm(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> Tensor:
    """`x / sqrt(mean(x**2) + epsilon) * weight` over the last dimension.

    Args:
        x: any floating dtype, at least one dimension.
        weight: one-dimensional, as long as the last dimension of `x`; None leaves the product out.
        epsilon: added to the mean.
        variance_size: take the mean over that many leading elements of the last dimension; None: over all.

    Raises:
        ValueError: an argument's dtype or shape does not fit, or `variance_size` is not in [1, last dimension].
    """
    return normalized("rms_norm", x, weight, epsilon, variance_size)


@register_op(allow_inplace=True, row_wise=True)
def fused_add_rms_norm(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """`rms_norm` of `x + x_residual`, and that sum as the new residual.

    The sum is normalised in float32; only the returned residual is rounded to the dtype of `x`.

    Args:
        x: any floating dtype, at least one dimension.
        x_residual: any floating dtype, the shape of `x`.
        weight: as for `rms_norm`.
        epsilon: as for `rms_norm`.
        variance_size: as for `rms_norm`.

    Returns:
        The normalised sum and the new residual.

    Raises:
        ValueError: as for `rms_norm`, or `x_residual` does not fit.
    """
    return added_and_normalized("fused_add_rms_norm", x, x_residual, weight, epsilon, variance_size)


def normalized(
    op: str, x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None, x_name: str = "x"
) -> Tensor:
    """The definition of `rms_norm`; errors name `op`, and `x` as its parameter is called."""
    _check(op, x, weight, variance_size, x_name)
    return _normalized(x.float(), x.dtype, weight, epsilon, variance_size)


def added_and_normalized(
    op: str, x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None
) -> tuple[Tensor, Tensor]:
    """The definition of `fused_add_rms_norm`; errors name `op`."""
    _check(op, x, weight, variance_size)
    if not x_residual.is_floating_point() or x_residual.shape != x.shape:
        raise ValueError(
            f"vllm_ir.{op}: x_residual must be floating of shape {_shape(x)}, the shape of x; "
            f"got {x_residual.dtype} of shape {_shape(x_residual)}"
        )
    total = x.float() + x_residual.float()
    return _normalized(total, x.dtype, weight, epsilon, variance_size), total.to(x.dtype)


def _normalized(
    values: Tensor, dtype: torch.dtype, weight: Tensor | None, epsilon: float, variance_size: int | None
) -> Tensor:
    measured = values if variance_size is None else values[..., :variance_size]
    scale = torch.rsqrt(measured.pow(2).mean(-1, keepdim=True) + epsilon)
    normed = (values * scale).to(dtype)
    return normed if weight is None else normed * weight


def _check(op: str, x: Tensor, weight: Tensor | None, variance_size: int | None, x_name: str = "x") -> None:
    if not x.is_floating_point() or x.dim() == 0:
        raise ValueError(
            f"vllm_ir.{op}: {x_name} must be floating with a last dimension, got {x.dtype} of shape {_shape(x)}"
        )
    last = x.shape[-1]
    if variance_size is not None and not 1 <= variance_size <= last:
        raise ValueError(
            f"vllm_ir.{op}: variance_size {variance_size} is not in [1, {last}], the last dimension of {x_name}"
        )
    if weight is not None and (weight.dim() != 1 or weight.shape[0] != last):
        raise ValueError(
            f"vllm_ir.{op}: weight must have shape [{last}], like the last dimension of {x_name}, got {_shape(weight)}"
        )


def _shape(tensor: Tensor) -> list[int]:
    return list(tensor.shape)


@rms_norm.register_input_generator
def generate_rms_norm_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16, epsilon: float = 1e-6
) -> tuple[object, ...]:
    """Random arguments of `rms_norm`."""
    return torch.randn(num_tokens, hidden_size).to(dtype), torch.randn(hidden_size).to(dtype), epsilon


@fused_add_rms_norm.register_input_generator
def generate_fused_add_rms_norm_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16, epsilon: float = 1e-6
) -> tuple[object, ...]:
    """Random arguments of `fused_add_rms_norm`."""
    x, residual = (torch.randn(num_tokens, hidden_size).to(dtype) for _ in range(2))
    return x, residual, torch.randn(hidden_size).to(dtype), epsilon
