"""Gated activation functions."""

import torch
import torch.nn.functional as F
from torch import Tensor

from vllm_ir.frontends.ops.registry import register_op


@register_op(allow_inplace=True, reuses=["x"])
def silu_and_mul(x: Tensor) -> Tensor:
    """`silu(x[..., :d]) * x[..., d:]`, where `2 * d` is the last dimension of `x`; in the dtype of `x`.

    Raises:
        ValueError: `x` is not floating, or its last dimension is missing or odd.
    """
    gate, up = _halves("silu_and_mul", x)
    return F.silu(gate) * up


@register_op(allow_inplace=True)
def gelu_and_mul(x: Tensor, approximate: str = "none") -> Tensor:
    """`gelu(x[..., :d]) * x[..., d:]`, where `2 * d` is the last dimension of `x`; in the dtype of `x`.

    Args:
        x: any floating dtype, an even last dimension.
        approximate: "none" for the function itself, by `erf`, or "tanh" for its usual approximation.

    Raises:
        ValueError: `x` is not floating, or its last dimension is missing or odd, or `approximate` is another string.
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f"vllm_ir.gelu_and_mul: approximate must be 'none' or 'tanh', got {approximate!r}")
    gate, up = _halves("gelu_and_mul", x)
    return F.gelu(gate, approximate=approximate) * up


def _halves(op: str, x: Tensor) -> tuple[Tensor, Tensor]:
    if not x.is_floating_point() or x.dim() == 0 or x.shape[-1] % 2:
        raise ValueError(
            f"vllm_ir.{op}: x must be floating with an even last dimension, got {x.dtype} of shape {list(x.shape)}"
        )
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


@silu_and_mul.register_input_generator
def generate_silu_and_mul_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16
) -> tuple[object, ...]:
    """Random arguments of `silu_and_mul`, whose result has `hidden_size` columns."""
    return (torch.randn(num_tokens, 2 * hidden_size).to(dtype),)


@gelu_and_mul.register_input_generator
def generate_gelu_and_mul_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16, approximate: str = "none"
) -> tuple[object, ...]:
    """Random arguments of `gelu_and_mul`, whose result has `hidden_size` columns."""
    return torch.randn(num_tokens, 2 * hidden_size).to(dtype), approximate
