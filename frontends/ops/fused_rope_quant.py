"""Rotary embedding and the write to the paged cache, of which the queries come quantised, as attention in fp8 has them.

Each op is its parts one after the other, bit for bit: queries are rounded to their dtype before they are quantised.
"""

import torch
from torch import Tensor

from vllm_ir.frontends.ops.fused_rope import (
    cached_heads,
    generate_qk_norm_rope_and_cache_inputs,
    generate_rope_and_cache_inputs,
    normed_heads,
)
from vllm_ir.frontends.ops.quantization import FP8_MAX, static_fp8
from vllm_ir.frontends.ops.registry import register_op
from vllm_ir.frontends.ops.rope import rotated


@register_op(
    activations=["query", "key", "key_cache", "value_cache"],
    allow_inplace=True,
    reuses=[None, "key", "key_cache", "value_cache"],
)
def rope_and_cache_static_fp8_quant(
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox: bool,
    query_scale: Tensor,
    rotary_dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`rope_and_cache`, and `static_scaled_fp8_quant` of its queries.

    `query_scale` is float32, one element; other arguments are those of `rope_and_cache`.

    Returns:
        The results of `rope_and_cache`, the query as float8_e4m3fn.

    Raises:
        ValueError: an argument's dtype or shape does not fit.
        IndexError: there are not that many slots in the cache.
    """
    op = "rope_and_cache_static_fp8_quant"
    turned, key = rotated(op, positions, query, key, head_size, cos_sin_cache, is_neox, rotary_dim)
    caches = cached_heads(op, key, value, key_cache, value_cache, slot_mapping)
    return static_fp8(op, turned, query_scale, "query_scale"), key, *caches


@register_op(
    activations=["qkv", "key_cache", "value_cache"],
    allow_inplace=True,
    reuses=[None, None, None, "key_cache", "value_cache"],
)
def qk_norm_rope_and_cache_static_fp8_quant(
    qkv: Tensor,
    positions: Tensor,
    q_weight: Tensor | None,
    k_weight: Tensor | None,
    epsilon: float,
    num_heads: int,
    num_kv_heads: int,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox: bool,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    query_scale: Tensor,
    rotary_dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """`qk_norm_rope_and_cache`, and `static_scaled_fp8_quant` of its queries.

    `query_scale` is float32, one element; other arguments are those of `qk_norm_rope_and_cache`.

    Returns:
        The results of `qk_norm_rope_and_cache`, the query as float8_e4m3fn.

    Raises:
        ValueError: an argument's dtype or shape does not fit.
        IndexError: there are not that many slots in the cache.
    """
    op = "qk_norm_rope_and_cache_static_fp8_quant"
    query, key, value = normed_heads(op, qkv, q_weight, k_weight, epsilon, num_heads, num_kv_heads, head_size)
    query, key = rotated(op, positions, query, key, head_size, cos_sin_cache, is_neox, rotary_dim)
    caches = cached_heads(op, key, value, key_cache, value_cache, slot_mapping)
    quantized = static_fp8(op, query, query_scale, "query_scale")
    return quantized, key, value.clone(memory_format=torch.contiguous_format), *caches


@rope_and_cache_static_fp8_quant.register_input_generator
def generate_rope_and_cache_static_fp8_quant_inputs(
    num_tokens: int = 16,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    head_size: int = 64,
    is_neox: bool = True,
    dtype: torch.dtype = torch.bfloat16,
) -> tuple[object, ...]:
    """Random arguments of `rope_and_cache_static_fp8_quant`; some elements of queries are out of range."""
    shared = generate_rope_and_cache_inputs(num_tokens, num_heads, num_kv_heads, head_size, is_neox, dtype)
    return *shared, (torch.rand(1) + 0.5) * (2 / FP8_MAX)


@qk_norm_rope_and_cache_static_fp8_quant.register_input_generator
def generate_qk_norm_rope_and_cache_static_fp8_quant_inputs(
    num_tokens: int = 16,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    head_size: int = 64,
    is_neox: bool = True,
    dtype: torch.dtype = torch.bfloat16,
) -> tuple[object, ...]:
    """Random arguments of `qk_norm_rope_and_cache_static_fp8_quant`; some elements of queries are out of range."""
    shared = generate_qk_norm_rope_and_cache_inputs(num_tokens, num_heads, num_kv_heads, head_size, is_neox, dtype)
    return *shared, (torch.rand(1) + 0.5) * (2 / FP8_MAX)
