"""The functions, which record each call."""

import functools

import standin_kernels as kernels
import torch
import torch.nn.functional as F
from torch import Tensor


def recorded(function):
    @functools.wraps(function)
    def recording(*args: object) -> object:
        kernels.CALLS.append((f"aiter.{function.__name__}", *map(kernels.described, args)))
        kernels.require(all(arg.is_contiguous() for arg in args if isinstance(arg, Tensor)))
        return function(*args)

    return recording


@recorded
def rms_norm(input: Tensor, weight: Tensor, epsilon: float, use_model_sensitive_rmsnorm: int = 0) -> Tensor:
    kernels.require(input.dim() == 2)
    return kernels.normed(input.float(), input.dtype, weight, epsilon)


@recorded
def rmsnorm2d_fwd_with_add(
    out: Tensor,
    input: Tensor,
    residual_in: Tensor,
    residual_out: Tensor,
    weight: Tensor,
    epsilon: float,
    use_model_sensitive_rmsnorm: int = 0,
) -> None:
    total = input.float() + residual_in.float()
    residual_out.copy_(total)
    out.copy_(kernels.normed(total, input.dtype, weight, epsilon))


@recorded
def silu_and_mul(out: Tensor, input: Tensor) -> None:
    gate, up = input.chunk(2, -1)
    torch.mul(F.silu(gate), up, out=out)
