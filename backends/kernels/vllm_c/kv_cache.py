"""Writing paged caches by provider `vllm_c`.

vLLM's `reshape_and_cache_flash` writes caches of the layout that the op has. It is told the strides of the key cache
for both, and copies 16 bytes at a time. Two tokens with one slot race for it, and a slot that is not in the cache is
written outside of it: the kernel looks at neither.
"""

import torch
from torch import Tensor

from vllm_ir.backends.kernels.external.layouts import (
    FLOATS,
    aligned,
    has_elements,
    is_contiguous,
    known,
    same_shape,
    strides_are_aligned,
)
from vllm_ir.backends.kernels.vllm_c.library import LIBRARY, PROVIDER, SUPPORTED, operator
from vllm_ir.frontends.ops import ops


def _takes_new(new: Tensor, cache: Tensor, slot_mapping: Tensor) -> bool:
    return (
        LIBRARY.takes(new)
        and LIBRARY.takes(cache)
        and new.dtype == cache.dtype
        and new.dtype in FLOATS
        and (new.dim(), cache.dim()) == (3, 4)
        and same_shape(new.shape, (*slot_mapping.shape, *cache.shape[2:]))
        and has_elements(new, cache)
        and is_contiguous(new, 1)
        and strides_are_aligned(new)
        and known(cache.stride(3) == 1)
        and strides_are_aligned(cache)
    )


def _takes_reshape_and_cache(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
) -> bool:
    return (
        LIBRARY.takes(slot_mapping)
        and slot_mapping.dtype is torch.int64
        and slot_mapping.dim() == 1
        and is_contiguous(slot_mapping)
        and _takes_new(key, key_cache, slot_mapping)
        and _takes_new(value, value_cache, slot_mapping)
        and key.dtype == value.dtype
        and same_shape(key_cache.shape, value_cache.shape)
        and same_shape(key_cache.stride(), value_cache.stride())
    )


@ops.reshape_and_cache.register_impl(
    PROVIDER, supported=SUPPORTED, supports_args=_takes_reshape_and_cache, inplace=["key_cache", "value_cache"]
)
def reshape_and_cache(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
) -> tuple[Tensor, Tensor]:
    """`_C_cache_ops::reshape_and_cache_flash(Tensor key, Tensor value, Tensor! key_cache, Tensor! value_cache, Tensor
    slot_mapping, str kv_cache_dtype, Tensor k_scale, Tensor v_scale)`.
    """
    # A cache of the keys' own dtype, which "auto" means, has no scales: they are passed, and not read.
    scale = key.new_empty(1, dtype=torch.float32)
    write = operator("reshape_and_cache_flash", "_C_cache_ops")
    write(aligned(key), aligned(value), key_cache, value_cache, slot_mapping, "auto", scale, scale)
    return key_cache, value_cache
