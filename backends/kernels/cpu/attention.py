"""Provider `cpu` of `paged_attention`: one pass over the keys of each token, without the scores of all in memory."""

import torch
from torch import SymInt, Tensor

from vllm_ir.backends.kernels.cpu.build import KERNEL_FILES
from vllm_ir.backends.kernels.cpu.layouts import has_dense_rows, is_dense, known
from vllm_ir.backends.kernels.cpu.library import call, define
from vllm_ir.backends.kernels.cpu.providers import DTYPES, PROVIDER, SUPPORTED
from vllm_ir.frontends.ops import ops

_INTEGERS = (torch.int32, torch.int64)


def _paged_attention_fake(query: Tensor, *_args: object) -> Tensor:
    return query.new_empty(query.shape)


PAGED_ATTENTION = define(
    "paged_attention(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_table, Tensor seq_lens, "
    "Tensor query_start, float scale, SymInt? sliding_window=None, float? soft_cap=None) -> Tensor",
    _paged_attention_fake,
)


def _is_floating(tensor: Tensor, dtype: torch.dtype, rank: int) -> bool:
    return is_dense(tensor) and tensor.dtype == dtype and tensor.dim() == rank and has_dense_rows(tensor)


def _takes_heads(query: Tensor, key_cache: Tensor, value_cache: Tensor) -> bool:
    dtype = query.dtype
    if dtype not in DTYPES or not _is_floating(query, dtype, 3):
        return False
    if not _is_floating(key_cache, dtype, 4) or not _is_floating(value_cache, dtype, 4):
        return False
    block_size, kv_heads, head_size = key_cache.shape[1:]
    return (
        all(known(left == right) for left, right in zip(key_cache.shape, value_cache.shape, strict=True))
        and known(head_size == query.shape[2])
        and known(block_size > 0)
        and known(kv_heads > 0)
        and known(query.shape[1] % kv_heads == 0)
    )


def _takes_places(block_table: Tensor, seq_lens: Tensor, query_start: Tensor) -> bool:
    for numbers, rank in ((block_table, 2), (seq_lens, 1), (query_start, 1)):
        if not is_dense(numbers) or numbers.dtype not in _INTEGERS or numbers.dim() != rank:
            return False
    sequences = seq_lens.shape[0]
    return known(block_table.shape[0] == sequences) and known(query_start.shape[0] == sequences + 1)


def takes_paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    query_start: Tensor,
    _scale: float,
    sliding_window: int | SymInt | None,
    soft_cap: float | None,
) -> bool:
    """Whether the kernel takes these arguments."""
    return (
        _takes_heads(query, key_cache, value_cache)
        and _takes_places(block_table, seq_lens, query_start)
        and (sliding_window is None or known(sliding_window > 0))
        and (soft_cap is None or soft_cap > 0)
    )


@ops.paged_attention.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, supports_args=takes_paged_attention
)
def paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    query_start: Tensor,
    scale: float,
    sliding_window: int | None = None,
    soft_cap: float | None = None,
) -> Tensor:
    """`paged_attention` into a new tensor; the caches may be windows of any strides with dense rows."""
    (result,) = call(
        PAGED_ATTENTION,
        query,
        key_cache,
        value_cache,
        block_table,
        seq_lens,
        query_start,
        scale,
        sliding_window,
        soft_cap,
    )
    return result
