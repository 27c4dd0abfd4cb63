"""Writing keys and values into a paged cache.

A cache is `[blocks, block_size, kv_heads, head_size]`. A token's place is a *slot*, `block * block_size + offset`.
"""

import torch
from torch import Tensor

from vllm_ir.frontends.ops.registry import register_op


@register_op(activations=["key_cache", "value_cache"], allow_inplace=True)
def reshape_and_cache(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
) -> tuple[Tensor, Tensor]:
    """The caches with every token's key and value in the token's slot.

    A token with a negative slot is written nowhere. Where several tokens have one slot, the last of them is there.

    Args:
        key: `[tokens, kv_heads, head_size]`, of the dtype of `key_cache`, whatever that is.
        value: `[tokens, kv_heads, value_head_size]`, of the dtype of `value_cache`.
        key_cache: `[blocks, block_size, kv_heads, head_size]`, of any strides.
        value_cache: `[blocks, block_size, kv_heads, value_head_size]`.
        slot_mapping: int64, `[tokens]`; less than `blocks * block_size`.

    Returns:
        The new `key_cache` and `value_cache`.

    Raises:
        ValueError: an argument's dtype or shape does not fit.
        IndexError: there are not that many slots in the cache.
    """
    _check(key, value, key_cache, value_cache, slot_mapping)
    ordered, order = torch.sort(slot_mapping, stable=True)
    # What `index_put` does with two rows for one place is not defined, so they are made equal: each token writes what
    # the last one of its slot has, and one without a slot what the token of the greatest slot writes.
    greatest = ordered[-1:]
    slots = torch.where(slot_mapping < 0, greatest, slot_mapping)
    source = order.index_select(0, torch.searchsorted(ordered, slots, right=True) - 1)
    # Where no token has a slot, slot 0 is given what it holds.
    idle = (greatest < 0)[:, None, None]
    slots = slots.clamp(min=0)
    block_size = key_cache.shape[1]
    # Block and offset rather than the slot, which would need a cache whose blocks lie behind one another.
    index = (slots // block_size, slots % block_size)
    return (
        key_cache.index_put(index, torch.where(idle, key_cache[index], key.index_select(0, source))),
        value_cache.index_put(index, torch.where(idle, value_cache[index], value.index_select(0, source))),
    )


@reshape_and_cache.register_input_generator
def generate_reshape_and_cache_inputs(
    num_tokens: int = 16,
    num_blocks: int = 8,
    block_size: int = 16,
    num_kv_heads: int = 2,
    head_size: int = 64,
    dtype: torch.dtype = torch.bfloat16,
) -> tuple[object, ...]:
    """Random arguments: as many blocks as the tokens need and at least `num_blocks`, all slots different."""
    num_blocks = max(num_blocks, -(-num_tokens // block_size))
    new = (num_tokens, num_kv_heads, head_size)
    cache = (num_blocks, block_size, num_kv_heads, head_size)
    tensors = [torch.randn(shape).to(dtype) for shape in (new, new, cache, cache)]
    return (*tensors, torch.randperm(num_blocks * block_size)[:num_tokens])


def _check(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor) -> None:
    for name, new, cache in (("key", key, key_cache), ("value", value, value_cache)):
        if new.dim() != 3 or cache.dim() != 4 or new.shape[1:] != cache.shape[2:] or new.dtype != cache.dtype:
            raise ValueError(
                f"vllm_ir.reshape_and_cache: {name} must be [tokens, kv_heads, head_size] and {name}_cache [blocks, "
                f"block_size, kv_heads, head_size] of the same dtype, got {new.dtype} of shape {list(new.shape)} and "
                f"{cache.dtype} of shape {list(cache.shape)}"
            )
    if key_cache.shape[:3] != value_cache.shape[:3]:
        raise ValueError(
            "vllm_ir.reshape_and_cache: key_cache and value_cache must have the same blocks, block_size and kv_heads, "
            f"got shapes {list(key_cache.shape)} and {list(value_cache.shape)}"
        )
    if slot_mapping.dtype is not torch.int64:
        raise ValueError(f"vllm_ir.reshape_and_cache: slot_mapping must be torch.int64, got {slot_mapping.dtype}")
    tokens = [tensor.shape[0] for tensor in (key, value)]
    if slot_mapping.dim() != 1 or any(slot_mapping.shape[0] != count for count in tokens):
        raise ValueError(
            f"vllm_ir.reshape_and_cache: slot_mapping must have a slot for each token of key, {tokens[0]}, and value, "
            f"{tokens[1]}, got shape {list(slot_mapping.shape)}"
        )
