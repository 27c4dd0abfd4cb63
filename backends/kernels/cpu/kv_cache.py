"""Provider `cpu` of writes to paged caches: rows are copied into the caches in place, whatever their dtype."""

import torch
from torch import Tensor

from vllm_ir.backends.kernels.cpu.build import KERNEL_FILES
from vllm_ir.backends.kernels.cpu.layouts import has_dense_rows, is_dense, known
from vllm_ir.backends.kernels.cpu.library import call, define, in_place_fake
from vllm_ir.backends.kernels.cpu.providers import PROVIDER, SUPPORTED
from vllm_ir.frontends.ops import ops

RESHAPE_AND_CACHE_ = define(
    "reshape_and_cache_(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor slot_mapping)"
    " -> ()",
    in_place_fake,
)
CONCAT_AND_CACHE_MLA_ = define(
    "concat_and_cache_mla_(Tensor kv_c, Tensor k_pe, Tensor(a!) kv_cache, Tensor slot_mapping) -> ()", in_place_fake
)


def _takes_new(new: Tensor, cache: Tensor, tokens: int) -> bool:
    return (
        is_dense(new)
        and is_dense(cache)
        and new.dtype == cache.dtype
        and (new.dim(), cache.dim()) == (3, 4)
        and known(new.shape[0] == tokens)
        and known(new.shape[1] == cache.shape[2])
        and known(new.shape[2] == cache.shape[3])
        and has_dense_rows(new)
        and has_dense_rows(cache)
    )


def takes_reshape_and_cache(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
) -> bool:
    """Whether the kernel takes these arguments."""
    if not is_dense(slot_mapping) or slot_mapping.dtype is not torch.int64 or slot_mapping.dim() != 1:
        return False
    tokens = slot_mapping.shape[0]
    return (
        _takes_new(key, key_cache, tokens)
        and _takes_new(value, value_cache, tokens)
        and all(known(key_cache.shape[dim] == value_cache.shape[dim]) for dim in range(3))
    )


@ops.reshape_and_cache.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, supports_args=takes_reshape_and_cache, inplace=True
)
def reshape_and_cache(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
) -> tuple[Tensor, Tensor]:
    """`reshape_and_cache` in place of the caches, which may be windows of any strides onto a greater one."""
    call(RESHAPE_AND_CACHE_, key, value, key_cache, value_cache, slot_mapping)
    return key_cache, value_cache


def takes_concat_and_cache_mla(kv_c: Tensor, k_pe: Tensor, kv_cache: Tensor, slot_mapping: Tensor) -> bool:
    """Whether the kernel takes these arguments."""
    if not is_dense(slot_mapping) or slot_mapping.dtype is not torch.int64 or slot_mapping.dim() != 1:
        return False
    if not is_dense(kv_cache) or kv_cache.dim() != 3 or not has_dense_rows(kv_cache):
        return False
    rows_fit = all(
        is_dense(new)
        and new.dim() == 2
        and new.dtype == kv_cache.dtype
        and known(new.shape[0] == slot_mapping.shape[0])
        and has_dense_rows(new)
        for new in (kv_c, k_pe)
    )
    return rows_fit and known(kv_cache.shape[2] == kv_c.shape[1] + k_pe.shape[1])


@ops.concat_and_cache_mla.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, supports_args=takes_concat_and_cache_mla, inplace=True
)
def concat_and_cache_mla(kv_c: Tensor, k_pe: Tensor, kv_cache: Tensor, slot_mapping: Tensor) -> Tensor:
    """`concat_and_cache_mla` in place of the cache, which may be a window of any strides onto a greater one."""
    CONCAT_AND_CACHE_MLA_(kv_c, k_pe, kv_cache, slot_mapping)
    return kv_cache
