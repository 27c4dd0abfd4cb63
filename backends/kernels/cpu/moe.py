"""Provider `cpu` of `fused_moe`: the tokens of each expert go through it together."""

import torch
from torch import Tensor

from vllm_ir.backends.kernels.cpu.build import KERNEL_FILES
from vllm_ir.backends.kernels.cpu.layouts import has_dense_rows, is_dense, known
from vllm_ir.backends.kernels.cpu.library import call, define
from vllm_ir.backends.kernels.cpu.providers import DTYPES, PROVIDER, SUPPORTED
from vllm_ir.frontends.ops import ops


def _fused_moe_fake(x: Tensor, *_args: object) -> Tensor:
    return x.new_empty(x.shape)


FUSED_MOE = define(
    "fused_moe(Tensor x, Tensor w13, Tensor w2, Tensor topk_weights, Tensor topk_ids) -> Tensor", _fused_moe_fake
)


def _takes_experts(x: Tensor, w13: Tensor, w2: Tensor) -> bool:
    if x.dtype not in DTYPES or (x.dim(), w13.dim(), w2.dim()) != (2, 3, 3) or not has_dense_rows(x):
        return False
    if not all(is_dense(tensor) and tensor.dtype == x.dtype for tensor in (x, w13, w2)):
        return False
    experts, rows, size = w13.shape
    return (
        known(size == x.shape[1])
        and known(w2.shape[0] == experts)
        and known(w2.shape[1] == size)
        and known(rows == 2 * w2.shape[2])
    )


def _takes_fused_moe(x: Tensor, w13: Tensor, w2: Tensor, topk_weights: Tensor, topk_ids: Tensor) -> bool:
    return (
        _takes_experts(x, w13, w2)
        and is_dense(topk_weights)
        and topk_weights.is_floating_point()
        and is_dense(topk_ids)
        and topk_ids.dtype in (torch.int32, torch.int64)
        and (topk_weights.dim(), topk_ids.dim()) == (2, 2)
        and known(topk_ids.shape[0] == x.shape[0])
        and all(known(left == right) for left, right in zip(topk_ids.shape, topk_weights.shape, strict=True))
    )


@ops.fused_moe.register_impl(PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, supports_args=_takes_fused_moe)
def fused_moe(x: Tensor, w13: Tensor, w2: Tensor, topk_weights: Tensor, topk_ids: Tensor) -> Tensor:
    """`fused_moe` into a new tensor: several experts read each row of `x`."""
    (result,) = call(FUSED_MOE, x, w13, w2, topk_weights, topk_ids)
    return result
