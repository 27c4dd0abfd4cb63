"""Gated activation functions."""

import torch.nn.functional as F
from torch import Tensor

from vllm_ir.frontends.ops.registry import register_op


@register_op(allow_inplace=True, reuses=["x"])
def silu_and_mul(x: Tensor) -> Tensor:
    """`silu(x[..., :d]) * x[..., d:]`, where `2 * d` is the last dimension of `x`; in the dtype of `x`.

    Raises:
        ValueError: `x` is not floating, or its last dimension is missing or odd.
    """
    if not x.is_floating_point() or x.dim() == 0 or x.shape[-1] % 2:
        raise ValueError(
            "vllm_ir.silu_and_mul: x must be floating with an even last dimension, "
            f"got {x.dtype} of shape {list(x.shape)}"
        )
    half = x.shape[-1] // 2
    return F.silu(x[..., :half]) * x[..., half:]
