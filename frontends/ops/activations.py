"""Gated activation functions.

The definitions are functions of the op's name, which errors state, so that fused ops are defined by them too.
"""

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
    return silu_gated("silu_and_mul", x)


@register_op(allow_inplace=True)
def gelu_and_mul(x: Tensor, approximate: str = "none") -> Tensor:
    """`gelu(x[..., :d]) * x[..., d:]`, where `2 * d` is the last dimension of `x`; in the dtype of `x`.

    Args:
        x: any floating dtype, an even last dimension.
        approximate: "none" for the function itself, by `erf`, or "tanh" for its usual approximation.

    Raises:
        ValueError: `x` is not floating, or its last dimension is missing or odd, or `approximate` is another string.
    """
    return gelu_gated("gelu_and_mul", x, approximate)


@register_op(activations=["gate", "up"], allow_inplace=True, reuses=["gate"], row_wise=True)
def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """`silu(gate) * up`: `silu_and_mul` of two tensors, as two projections give them; in their dtype.

    Args:
        gate: any floating dtype and shape.
        up: of the dtype and shape of `gate`.

    Raises:
        ValueError: `gate` is not floating, or `up` is of another dtype or shape.
    """
    _check_pair("silu_mul", gate, up)
    return F.silu(gate) * up


@register_op(activations=["gate", "up"], allow_inplace=True, reuses=["gate"], row_wise=True)
def gelu_mul(gate: Tensor, up: Tensor, approximate: str = "none") -> Tensor:
    """`gelu(gate) * up`: `gelu_and_mul` of two tensors, as two projections give them; in their dtype.

    Args:
        gate: any floating dtype and shape.
        up: of the dtype and shape of `gate`.
        approximate: as for `gelu_and_mul`.

    Raises:
        ValueError: `gate` is not floating, `up` is of another dtype or shape, or `approximate` is another string.
    """
    _check_approximate("gelu_mul", approximate)
    _check_pair("gelu_mul", gate, up)
    return F.gelu(gate, approximate=approximate) * up


def silu_gated(op: str, x: Tensor) -> Tensor:
    """The definition of `silu_and_mul`; errors name `op`."""
    gate, up = _halves(op, x)
    return F.silu(gate) * up


def gelu_gated(op: str, x: Tensor, approximate: str) -> Tensor:
    """The definition of `gelu_and_mul`; errors name `op`."""
    _check_approximate(op, approximate)
    gate, up = _halves(op, x)
    return F.gelu(gate, approximate=approximate) * up


def _halves(op: str, x: Tensor) -> tuple[Tensor, Tensor]:
    if not x.is_floating_point() or x.dim() == 0 or x.shape[-1] % 2:
        raise ValueError(
            f"vllm_ir.{op}: x must be floating with an even last dimension, got {x.dtype} of shape {list(x.shape)}"
        )
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]


def _check_approximate(op: str, approximate: str) -> None:
    if approximate not in ("none", "tanh"):
        raise ValueError(f"vllm_ir.{op}: approximate must be 'none' or 'tanh', got {approximate!r}")


def _check_pair(op: str, gate: Tensor, up: Tensor) -> None:
    if not gate.is_floating_point():
        raise ValueError(f"vllm_ir.{op}: gate must be floating, got {gate.dtype}")
    if up.dtype != gate.dtype or up.shape != gate.shape:
        raise ValueError(
            f"vllm_ir.{op}: up must be {gate.dtype} of shape {list(gate.shape)}, like gate; "
            f"got {up.dtype} of shape {list(up.shape)}"
        )


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


@silu_mul.register_input_generator
def generate_silu_mul_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16
) -> tuple[object, ...]:
    """Random arguments of `silu_mul`, with `hidden_size` columns each."""
    gate, up = (torch.randn(num_tokens, hidden_size).to(dtype) for _ in range(2))
    return gate, up


@gelu_mul.register_input_generator
def generate_gelu_mul_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16, approximate: str = "none"
) -> tuple[object, ...]:
    """Random arguments of `gelu_mul`, with `hidden_size` columns each."""
    gate, up = (torch.randn(num_tokens, hidden_size).to(dtype) for _ in range(2))
    return gate, up, approximate
