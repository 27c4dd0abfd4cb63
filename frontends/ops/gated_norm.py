"""RMS norm with a gate behind it, as state-space and linear-attention layers end (Mamba2, Qwen3-Next).

The definition is a function of the op's name, which errors state, so that fused ops are defined by it too.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from vllm_ir.frontends.ops.norms import normalized
from vllm_ir.frontends.ops.registry import register_op


@register_op(activations=["x", "gate"], allow_inplace=True, reuses=["x"], row_wise=True)
def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor | None, epsilon: float) -> Tensor:
    """`rms_norm(x, weight, epsilon) * silu(gate)`: the norm comes before the gate.

    The norm is rounded as `rms_norm` rounds it. Its product with the float32 `silu` has the dtype that torch promotes
    the two to, float32 as a rule, and is rounded once, to the dtype of `x`.

    Args:
        x: any floating dtype, at least one dimension.
        gate: any floating dtype, the shape of `x`.
        weight: one-dimensional, as long as the last dimension of `x`; None leaves the product out.
        epsilon: added to the mean of squares.

    Returns:
        The gated norm, in the dtype of `x`, whatever that of the weight.

    Raises:
        ValueError: an argument's dtype or shape does not fit.
    """
    return normalized_and_gated("gated_rms_norm", x, gate, weight, epsilon)


def normalized_and_gated(op: str, x: Tensor, gate: Tensor, weight: Tensor | None, epsilon: float) -> Tensor:
    """The definition of `gated_rms_norm`; errors name `op`."""
    normed = normalized(op, x, weight, epsilon, None)
    if not gate.is_floating_point() or gate.shape != x.shape:
        raise ValueError(
            f"vllm_ir.{op}: gate must be floating of shape {list(x.shape)}, the shape of x; "
            f"got {gate.dtype} of shape {list(gate.shape)}"
        )
    return (normed * F.silu(gate.float())).to(x.dtype)


@gated_rms_norm.register_input_generator
def generate_gated_rms_norm_inputs(
    num_tokens: int = 32, hidden_size: int = 128, dtype: torch.dtype = torch.bfloat16
) -> tuple[object, ...]:
    """Random arguments of `gated_rms_norm`."""
    x, gate = (torch.randn(num_tokens, hidden_size).to(dtype) for _ in range(2))
    return x, gate, torch.randn(hidden_size).to(dtype), 1e-6
