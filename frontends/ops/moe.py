"""Mixture of experts: gated MLPs, of which every token goes through a few."""

import torch
import torch.nn.functional as F
from torch import Tensor

from vllm_ir.frontends.ops.registry import register_op


@register_op
def fused_moe(x: Tensor, w13: Tensor, w2: Tensor, topk_weights: Tensor, topk_ids: Tensor) -> Tensor:
    """The weighted sum of what a token's experts make of it.

    An expert computes `(silu(x @ gate.T) * (x @ up.T)) @ down.T`. Products, `silu` and gated values are rounded to the
    dtype of `x`; the weighted sum is in float32, and rounded at the end.

    Args:
        x: floating, `[tokens, d]`.
        w13: `[experts, 2 * i, d]` in the dtype of `x`: the rows of the gate, and then those of the other projection.
        w2: `[experts, d, i]` in the dtype of `x`.
        topk_weights: floating, `[tokens, k]`.
        topk_ids: int32 or int64, `[tokens, k]`. An id that is not in [0, experts) adds nothing: of experts that are
            spread over ranks, each rank has some, and renumbers those of the others to such ids.

    Returns:
        `[tokens, d]`, in the dtype of `x`.

    Raises:
        ValueError: an argument's dtype or shape does not fit.
    """
    _check(x, w13, w2, topk_weights, topk_ids)
    # Through every expert, so that nothing depends on the numbers in topk_ids.
    gate, up = (x @ w13.transpose(1, 2)).chunk(2, dim=-1)
    results = (F.silu(gate) * up) @ w2.transpose(1, 2)  # [experts, tokens, d]
    # An expert more, which adds nothing: no weight times a result that is infinite, and no experts at all, are fine.
    results = F.pad(results, (0, 0, 0, 0, 0, 1))
    experts = w13.shape[0]
    ids = torch.where((topk_ids >= 0) & (topk_ids < experts), topk_ids, experts).long()
    chosen = results[ids, torch.arange(x.shape[0], device=x.device)[:, None]]  # [tokens, k, d]
    weights = topk_weights.float().where(ids < experts, 0.0)
    return (chosen.float() * weights[..., None]).sum(1).to(x.dtype)


@fused_moe.register_input_generator
def generate_fused_moe_inputs(
    num_tokens: int = 16,
    hidden_size: int = 64,
    intermediate_size: int = 128,
    num_experts: int = 8,
    topk: int = 2,
    dtype: torch.dtype = torch.bfloat16,
) -> tuple[object, ...]:
    """Random arguments: different experts for each token, with weights that add up to 1."""
    x = torch.randn(num_tokens, hidden_size).to(dtype)
    w13 = (torch.randn(num_experts, 2 * intermediate_size, hidden_size) * hidden_size**-0.5).to(dtype)
    w2 = (torch.randn(num_experts, hidden_size, intermediate_size) * intermediate_size**-0.5).to(dtype)
    weights, ids = torch.rand(num_tokens, num_experts).topk(topk, dim=-1)
    return x, w13, w2, weights / weights.sum(-1, keepdim=True), ids


def _check(x: Tensor, w13: Tensor, w2: Tensor, topk_weights: Tensor, topk_ids: Tensor) -> None:
    if not x.is_floating_point() or x.dim() != 2:
        raise ValueError(
            f"vllm_ir.fused_moe: x must be floating of shape [tokens, d], got {x.dtype} of shape {list(x.shape)}"
        )
    tokens, size = x.shape
    for name, weight in (("w13", w13), ("w2", w2)):
        if weight.dtype != x.dtype or weight.dim() != 3:
            raise ValueError(
                f"vllm_ir.fused_moe: {name} must have three dimensions and the dtype of x, {x.dtype}, got "
                f"{weight.dtype} of shape {list(weight.shape)}"
            )
    experts, rows, columns = w13.shape
    if columns != size or w2.shape[0] != experts or w2.shape[1] != size or rows != 2 * w2.shape[2]:
        raise ValueError(
            f"vllm_ir.fused_moe: w13 must be [experts, 2 * i, {size}] and w2 [experts, {size}, i] for an x of {size} "
            f"columns, got shapes {list(w13.shape)} and {list(w2.shape)}"
        )
    if not topk_weights.is_floating_point() or topk_ids.dtype not in (torch.int32, torch.int64):
        raise ValueError(
            "vllm_ir.fused_moe: topk_weights must be floating and topk_ids int32 or int64, got "
            f"{topk_weights.dtype} and {topk_ids.dtype}"
        )
    if topk_ids.dim() != 2 or topk_ids.shape[0] != tokens or topk_weights.shape != topk_ids.shape:
        raise ValueError(
            f"vllm_ir.fused_moe: topk_weights and topk_ids must be [{tokens}, k], a row for each token of x, got "
            f"shapes {list(topk_weights.shape)} and {list(topk_ids.shape)}"
        )
