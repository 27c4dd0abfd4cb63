"""Provider `cpu` of `reshape_and_cache`: rows are copied into the caches in place, whatever their dtype."""

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


def _takes_reshape_and_cache(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
) -> bool:
    if not is_dense(slot_mapping) or slot_mapping.dtype is not torch.int64 or slot_mapping.dim() != 1:
        return False
    tokens = slot_mapping.shape[0]
    return (
        _takes_new(key, key_cache, tokens)
        and _takes_new(value, value_cache, tokens)
        and all(known(key_cache.shape[dim] == value_cache.shape[dim]) for dim in range(3))
    )


@ops.reshape_and_cache.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, supports_args=_takes_reshape_and_cache, inplace=True
)
def reshape_and_cache(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
) -> tuple[Tensor, Tensor]:
    """`reshape_and_cache` in place of the caches, which may be windows of any strides onto a greater one."""
    call(RESHAPE_AND_CACHE_, key, value, key_cache, value_cache, slot_mapping)
    return key_cache, value_cache
