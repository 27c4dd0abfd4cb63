"""Provider `cpu` of the ops that work on rows: which arguments its kernels take, and the calls.

`supports_args` takes every argument that a kernel handles without an intermediate copy and with the native definition's
result, layout included: float32, bfloat16 and float16 (float64 is left to the native definition), any number of
dimensions and elements, rows that are dense and lie in the order of their indices, whatever the gaps between them. The
operators themselves take any strides, at the cost of a copy, because a compiler may choose a layout of its own.
"""

import torch
from torch import Tensor

from vllm_ir.backends.kernels.cpu.build import KERNEL_FILES, unsupported_reason
from vllm_ir.backends.kernels.cpu.layouts import is_dense, is_row_major, known
from vllm_ir.backends.kernels.cpu.library import (
    FUSED_ADD_RMS_NORM_,
    GELU_AND_MUL,
    RMS_NORM,
    ROTARY_EMBEDDING_,
    SILU_AND_MUL,
    call,
)
from vllm_ir.frontends.ops import ops

PROVIDER = "cpu"
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SUPPORTED = unsupported_reason() is None


def takes_rows(x: Tensor) -> bool:
    """Whether the kernels walk this tensor as it is, row by row."""
    return is_dense(x) and x.dtype in DTYPES and x.dim() > 0 and is_row_major(x)


def takes_norm(x: Tensor, weight: Tensor | None, variance_size: int | None) -> bool:
    """Whether the kernels normalise this tensor with this weight."""
    if not takes_rows(x):
        return False
    size = x.shape[-1]
    if variance_size is not None and not (known(variance_size >= 1) and known(variance_size <= size)):
        return False
    return weight is None or (
        is_dense(weight) and weight.dtype in DTYPES and weight.dim() == 1 and known(weight.shape[0] == size)
    )


def _takes_rms_norm(x: Tensor, weight: Tensor | None, _epsilon: float, variance_size: int | None) -> bool:
    return takes_norm(x, weight, variance_size)


@ops.rms_norm.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, batch_invariant=True, supports_args=_takes_rms_norm
)
def rms_norm(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> Tensor:
    """`rms_norm` into a new tensor; any weight, as its dtype and that of `x` promote."""
    # Not in place: as a rule x is the residual stream, which is read again; to copy it would cost more than the norm.
    (result,) = call(RMS_NORM, x, weight, epsilon, variance_size)
    return result


def takes_fused_add_rms_norm(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, _epsilon: float, variance_size: int | None
) -> bool:
    """Whether the kernel takes these arguments."""
    if not takes_norm(x, weight, variance_size) or not takes_rows(x_residual):
        return False
    if x_residual.dtype != x.dtype or x_residual.dim() != x.dim():
        return False
    if not all(known(left == right) for left, right in zip(x.shape, x_residual.shape, strict=True)):
        return False
    # A weight that promotes the result is refused: the result would not fit into x.
    return weight is None or torch.promote_types(x.dtype, weight.dtype) == x.dtype


@ops.fused_add_rms_norm.register_impl(
    PROVIDER,
    supported=SUPPORTED,
    sources=KERNEL_FILES,
    batch_invariant=True,
    supports_args=takes_fused_add_rms_norm,
    inplace=True,
)
def fused_add_rms_norm(
    x: Tensor, x_residual: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None
) -> tuple[Tensor, Tensor]:
    """`fused_add_rms_norm`: the normalised sum in `x`, the new residual in `x_residual`."""
    FUSED_ADD_RMS_NORM_(x, x_residual, weight, epsilon, variance_size)
    return x, x_residual


def _takes_silu_and_mul(x: Tensor) -> bool:
    return takes_rows(x) and known(x.shape[-1] % 2 == 0)


@ops.silu_and_mul.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, batch_invariant=True, supports_args=_takes_silu_and_mul
)
def silu_and_mul(x: Tensor) -> Tensor:
    """`silu_and_mul` into a new tensor: the result has half as many elements."""
    (result,) = call(SILU_AND_MUL, x)
    return result


def takes_gelu_and_mul(x: Tensor, approximate: str) -> bool:
    """Whether the kernel takes these arguments."""
    return approximate in ("none", "tanh") and takes_rows(x) and known(x.shape[-1] % 2 == 0)


@ops.gelu_and_mul.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, batch_invariant=True, supports_args=takes_gelu_and_mul
)
def gelu_and_mul(x: Tensor, approximate: str = "none") -> Tensor:
    """`gelu_and_mul` into a new tensor: the result has half as many elements."""
    (result,) = call(GELU_AND_MUL, x, approximate)
    return result


def takes_rotary_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    head_size: int,
    cos_sin_cache: Tensor,
    _is_neox: bool,
    rotary_dim: int | None,
) -> bool:
    """Whether the kernel takes these arguments."""
    # The native definition refuses calls without tokens.
    tokens = positions.numel()
    if not is_dense(positions) or positions.dtype not in (torch.int64, torch.int32) or not known(tokens > 0):
        return False
    if not is_dense(cos_sin_cache) or cos_sin_cache.dtype not in DTYPES or cos_sin_cache.dim() != 2:
        return False
    columns = cos_sin_cache.shape[1]
    if not known(columns % 2 == 0) or not known(columns <= head_size) or not known(head_size > 0):
        return False
    if rotary_dim is not None and not known(rotary_dim == columns):
        return False
    return all(
        takes_rows(x) and known(x.shape[-1] % head_size == 0) and known(x.numel() % (tokens * head_size) == 0)
        for x in (query, key)
    )


@ops.rotary_embedding.register_impl(
    PROVIDER,
    supported=SUPPORTED,
    sources=KERNEL_FILES,
    batch_invariant=True,
    supports_args=takes_rotary_embedding,
    inplace=True,
)
def rotary_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox: bool,
    rotary_dim: int | None = None,  # noqa: ARG001  # always the table's width, as checked above
) -> tuple[Tensor, Tensor]:
    """`rotary_embedding` in place of `query` and `key`."""
    ROTARY_EMBEDDING_(positions, query, key, head_size, cos_sin_cache, is_neox)
    return query, key
