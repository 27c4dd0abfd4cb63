"""Writing keys and values into a static cache: dense tensors with a place for each position of each sequence.

A paged cache is written by `reshape_and_cache`.
"""

import torch
from torch import Tensor

from vllm_ir.frontends.ops.registry import register_op


@register_op(activations=["key_cache", "value_cache"], allow_inplace=True)
def write_static_cache(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, positions: Tensor
) -> tuple[Tensor, Tensor]:
    """The caches with the keys and values of tokens at the tokens' positions, which all sequences have in common.

    Args:
        key: `[sequences, kv_heads, tokens, head_size]`, of the dtype of `key_cache`, whatever that is.
        value: `[sequences, kv_heads, tokens, value_head_size]`, of the dtype of `value_cache`.
        key_cache: `[sequences, kv_heads, positions, head_size]`.
        value_cache: `[sequences, kv_heads, positions, value_head_size]`.
        positions: int64, `[tokens]`, all different.

    Returns:
        The new `key_cache` and `value_cache`.

    Raises:
        ValueError: an argument's dtype or shape does not fit.
        IndexError: a position is not in the cache.
    """
    _check("key", key, key_cache, positions)
    _check("value", value, value_cache, positions)
    return key_cache.index_copy(2, positions, key), value_cache.index_copy(2, positions, value)


def _check(name: str, new: Tensor, cache: Tensor, positions: Tensor) -> None:
    if positions.dtype is not torch.int64 or positions.dim() != 1:
        raise ValueError(
            f"vllm_ir.write_static_cache: positions must be int64 with one dimension, got {positions.dtype} of shape "
            f"{list(positions.shape)}"
        )
    if cache.dim() != 4:
        raise ValueError(
            f"vllm_ir.write_static_cache: {name}_cache must have shape [sequences, kv_heads, positions, head_size], "
            f"got {list(cache.shape)}"
        )
    shape = [*cache.shape[:2], positions.shape[0], cache.shape[3]]
    if new.dtype != cache.dtype or list(new.shape) != shape:
        raise ValueError(
            f"vllm_ir.write_static_cache: {name} must be {cache.dtype} of shape {shape}, by {name}_cache and "
            f"positions; got {new.dtype} of shape {list(new.shape)}"
        )


@write_static_cache.register_input_generator
def generate_write_static_cache_inputs(
    num_tokens: int = 4,
    num_sequences: int = 2,
    num_kv_heads: int = 2,
    length: int = 32,
    head_size: int = 64,
    dtype: torch.dtype = torch.bfloat16,
) -> tuple[object, ...]:
    """Random arguments: caches with at least `length` positions, and as many as the tokens need."""
    length = max(length, num_tokens)
    new, cache = ((num_sequences, num_kv_heads, size, head_size) for size in (num_tokens, length))
    return *(torch.randn(shape).to(dtype) for shape in (new, new, cache, cache)), torch.randperm(length)[:num_tokens]
