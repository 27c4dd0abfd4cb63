"""Writing keys and values into a paged cache.

A cache is `[blocks, block_size, kv_heads, head_size]`; that of multi-head latent attention (MLA) has no heads, and
holds what keys and values are made of. A token's place is a *slot*, `block * block_size + offset`.

The definitions are functions of the op's name, which errors state, so that fused ops are defined by them too.
"""

from collections.abc import Mapping

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
    return with_keys_and_values("reshape_and_cache", key, value, key_cache, value_cache, slot_mapping)


@register_op(activations=["kv_cache"], allow_inplace=True)
def concat_and_cache_mla(kv_c: Tensor, k_pe: Tensor, kv_cache: Tensor, slot_mapping: Tensor) -> Tensor:
    """The cache with every token's latent, and the rotated part of its key behind it, in the token's slot.

    A token with a negative slot is written nowhere. Where several tokens have one slot, the last of them is there.

    Args:
        kv_c: the latents that keys and values are made of, `[tokens, latent_size]`, of the dtype of `kv_cache`,
            whatever that is.
        k_pe: the part of the keys that rotates, `[tokens, rope_size]`, of the same dtype.
        kv_cache: `[blocks, block_size, latent_size + rope_size]`, of any strides.
        slot_mapping: int64, `[tokens]`; less than `blocks * block_size`.

    Returns:
        The new `kv_cache`.

    Raises:
        ValueError: an argument's dtype or shape does not fit.
        IndexError: there are not that many slots in the cache.
    """
    return with_latents("concat_and_cache_mla", kv_c, k_pe, kv_cache, slot_mapping)


def with_keys_and_values(
    op: str, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
) -> tuple[Tensor, Tensor]:
    """The definition of `reshape_and_cache`; errors name `op`."""
    _check(op, key, value, key_cache, value_cache, slot_mapping)
    places = _Places(slot_mapping, key_cache.shape[1])
    return places.written(key_cache, key), places.written(value_cache, value)


def with_latents(op: str, kv_c: Tensor, k_pe: Tensor, kv_cache: Tensor, slot_mapping: Tensor) -> Tensor:
    """The definition of `concat_and_cache_mla`; errors name `op`."""
    _check_latents(op, kv_c, k_pe, kv_cache)
    _check_slots(op, slot_mapping, {"kv_c": kv_c.shape[0], "k_pe": k_pe.shape[0]})
    return _Places(slot_mapping, kv_cache.shape[1]).written(kv_cache, torch.cat((kv_c, k_pe), -1))


class _Places:
    """Where in a cache the tokens of a slot mapping go."""

    def __init__(self, slot_mapping: Tensor, block_size: int) -> None:
        ordered, order = torch.sort(slot_mapping, stable=True)
        # What `index_put` does with two rows for one place is not defined, so they are made equal: each token writes
        # what the last one of its slot has, and one without a slot what the token of the greatest slot writes.
        greatest = ordered[-1:]
        slots = torch.where(slot_mapping < 0, greatest, slot_mapping)
        self.source = order.index_select(0, torch.searchsorted(ordered, slots, right=True) - 1)
        # Where no token has a slot, slot 0 is given what it holds.
        self.idle = greatest < 0
        slots = slots.clamp(min=0)
        # Block and offset rather than the slot, which would need a cache whose blocks lie behind one another.
        self.index = (slots // block_size, slots % block_size)

    def written(self, cache: Tensor, new: Tensor) -> Tensor:
        """A cache with a row of `new` for each token."""
        idle = self.idle[(..., *[None] * (new.dim() - 1))]
        return cache.index_put(self.index, torch.where(idle, cache[self.index], new.index_select(0, self.source)))


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


@concat_and_cache_mla.register_input_generator
def generate_concat_and_cache_mla_inputs(
    num_tokens: int = 16,
    num_blocks: int = 8,
    block_size: int = 16,
    latent_size: int = 64,
    rope_size: int = 16,
    dtype: torch.dtype = torch.bfloat16,
) -> tuple[object, ...]:
    """Random arguments: as many blocks as the tokens need and at least `num_blocks`, all slots different."""
    num_blocks = max(num_blocks, -(-num_tokens // block_size))
    shapes = ((num_tokens, latent_size), (num_tokens, rope_size), (num_blocks, block_size, latent_size + rope_size))
    tensors = [torch.randn(shape).to(dtype) for shape in shapes]
    return (*tensors, torch.randperm(num_blocks * block_size)[:num_tokens])


def _check(op: str, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor) -> None:
    for name, new, cache in (("key", key, key_cache), ("value", value, value_cache)):
        if new.dim() != 3 or cache.dim() != 4 or new.shape[1:] != cache.shape[2:] or new.dtype != cache.dtype:
            raise ValueError(
                f"vllm_ir.{op}: {name} must be [tokens, kv_heads, head_size] and {name}_cache [blocks, "
                f"block_size, kv_heads, head_size] of the same dtype, got {new.dtype} of shape {list(new.shape)} and "
                f"{cache.dtype} of shape {list(cache.shape)}"
            )
    if key_cache.shape[:3] != value_cache.shape[:3]:
        raise ValueError(
            f"vllm_ir.{op}: key_cache and value_cache must have the same blocks, block_size and kv_heads, "
            f"got shapes {list(key_cache.shape)} and {list(value_cache.shape)}"
        )
    _check_slots(op, slot_mapping, {"key": key.shape[0], "value": value.shape[0]})


def _check_latents(op: str, kv_c: Tensor, k_pe: Tensor, kv_cache: Tensor) -> None:
    for name, new in (("kv_c", kv_c), ("k_pe", k_pe)):
        if new.dim() != 2 or new.dtype != kv_cache.dtype:
            raise ValueError(
                f"vllm_ir.{op}: {name} must be [tokens, size] of the dtype of kv_cache, {kv_cache.dtype}, got "
                f"{new.dtype} of shape {list(new.shape)}"
            )
    if kv_cache.dim() != 3 or kv_cache.shape[2] != kv_c.shape[1] + k_pe.shape[1]:
        raise ValueError(
            f"vllm_ir.{op}: kv_cache must be [blocks, block_size, {kv_c.shape[1] + k_pe.shape[1]}], with room for rows "
            f"of kv_c and k_pe, got shape {list(kv_cache.shape)}"
        )


def _check_slots(op: str, slot_mapping: Tensor, tokens: Mapping[str, int]) -> None:
    if slot_mapping.dtype is not torch.int64:
        raise ValueError(f"vllm_ir.{op}: slot_mapping must be torch.int64, got {slot_mapping.dtype}")
    if slot_mapping.dim() != 1 or any(slot_mapping.shape[0] != count for count in tokens.values()):
        counts = ", and ".join(f"{name}, {count}" for name, count in tokens.items())
        raise ValueError(
            f"vllm_ir.{op}: slot_mapping must have a slot for each token of {counts}, "
            f"got shape {list(slot_mapping.shape)}"
        )
