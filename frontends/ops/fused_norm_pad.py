"""A residual addition, its RMS norm, and zeros behind each row of that, for kernels that want rows of certain lengths.

The op is its parts one after the other, bit for bit.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from vllm_ir.frontends.ops.norms import added_and_normalized, generate_fused_add_rms_norm_inputs
from vllm_ir.frontends.ops.registry import register_op


@register_op(allow_inplace=True, reuses=[None, "x_residual"], row_wise=True)
def fused_add_rms_norm_pad(
    x: Tensor,
    x_residual: Tensor,
    weight: Tensor | None,
    epsilon: float,
    padding: int,
    variance_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """What `fused_add_rms_norm` normalises, with `padding` zeros at the end of each row.

    Args:
        x: any floating dtype, at least one dimension.
        x_residual: any floating dtype, the shape of `x`.
        weight: one-dimensional, as long as the last dimension of `x`; None leaves the product out.
        epsilon: added to the mean of squares.
        padding: how many zeros; not negative.
        variance_size: take the mean over that many leading elements of the last dimension; None: over all.

    Returns:
        The normalised rows, `[..., last dimension + padding]`, and the new residual, in the dtype of `x`.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
    """
    op = "fused_add_rms_norm_pad"
    if padding < 0:
        raise ValueError(f"vllm_ir.{op}: padding must not be negative, got {padding}")
    normed, residual = added_and_normalized(op, x, x_residual, weight, epsilon, variance_size)
    return F.pad(normed, (0, padding)), residual


@fused_add_rms_norm_pad.register_input_generator
def generate_fused_add_rms_norm_pad_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16, padding: int = 16
) -> tuple[object, ...]:
    """Random arguments of `fused_add_rms_norm_pad`."""
    return *generate_fused_add_rms_norm_inputs(num_tokens, hidden_size, dtype), padding
