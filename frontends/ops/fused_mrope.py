"""Multimodal rotary embedding between the norms of heads and the write to the paged cache, each op its parts."""

import torch
from torch import Tensor

from vllm_ir.frontends.ops.fused_rope import cached_heads, generate_qk_norm_rope_and_cache_inputs, normed_heads
from vllm_ir.frontends.ops.mrope import rotated_by_axes, sections_of
from vllm_ir.frontends.ops.quantization import FP8_MAX, static_fp8
from vllm_ir.frontends.ops.registry import register_op


@register_op(
    activations=["qkv", "key_cache", "value_cache"],
    allow_inplace=True,
    reuses=[None, None, None, "key_cache", "value_cache"],
)
def qk_norm_mrope_and_cache(
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
    mrope_section: list[int],
    mrope_interleaved: bool,
    rotary_dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """`qk_norm_rope_and_cache` with `mrope_embedding` in the place of `rotary_embedding`.

    `positions` and sections are those of `mrope_embedding`, with one dimension of tokens. Other arguments, and results,
    are those of `qk_norm_rope_and_cache`.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
        IndexError: there are not that many slots in the cache.
    """
    op = "qk_norm_mrope_and_cache"
    query, key, value = normed_heads(op, qkv, q_weight, k_weight, epsilon, num_heads, num_kv_heads, head_size)
    sections = (mrope_section, mrope_interleaved)
    turned = rotated_by_axes(op, positions, query, key, head_size, cos_sin_cache, is_neox, *sections, rotary_dim)
    caches = cached_heads(op, turned[1], value, key_cache, value_cache, slot_mapping)
    return *turned, value.clone(memory_format=torch.contiguous_format), *caches


@register_op(
    activations=["qkv", "key_cache", "value_cache"],
    allow_inplace=True,
    reuses=[None, None, None, "key_cache", "value_cache"],
)
def qk_norm_mrope_and_cache_static_fp8_quant(
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
    mrope_section: list[int],
    mrope_interleaved: bool,
    query_scale: Tensor,
    rotary_dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """`qk_norm_mrope_and_cache`, and `static_scaled_fp8_quant` of its queries with the scale `query_scale`.

    Raises:
        ValueError: an argument's dtype, shape or value does not fit.
        IndexError: there are not that many slots in the cache.
    """
    op = "qk_norm_mrope_and_cache_static_fp8_quant"
    query, key, value = normed_heads(op, qkv, q_weight, k_weight, epsilon, num_heads, num_kv_heads, head_size)
    sections = (mrope_section, mrope_interleaved)
    query, key = rotated_by_axes(op, positions, query, key, head_size, cos_sin_cache, is_neox, *sections, rotary_dim)
    caches = cached_heads(op, key, value, key_cache, value_cache, slot_mapping)
    quantized = static_fp8(op, query, query_scale, "query_scale")
    return quantized, key, value.clone(memory_format=torch.contiguous_format), *caches


@qk_norm_mrope_and_cache.register_input_generator
def generate_qk_norm_mrope_and_cache_inputs(
    num_tokens: int = 16,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    head_size: int = 64,
    is_neox: bool = True,
    mrope_interleaved: bool = False,
    dtype: torch.dtype = torch.bfloat16,
) -> tuple[object, ...]:
    """Random arguments of `qk_norm_mrope_and_cache`, all slots different, three axes."""
    sizes = (num_tokens, num_heads, num_kv_heads, head_size)
    qkv, positions, *rest = generate_qk_norm_rope_and_cache_inputs(*sizes, is_neox, dtype)
    positions = torch.randint(0, 1024, (3, num_tokens))
    return qkv, positions, *rest, sections_of(head_size), mrope_interleaved


@qk_norm_mrope_and_cache_static_fp8_quant.register_input_generator
def generate_qk_norm_mrope_and_cache_static_fp8_quant_inputs(
    num_tokens: int = 16,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    head_size: int = 64,
    is_neox: bool = True,
    mrope_interleaved: bool = False,
    dtype: torch.dtype = torch.bfloat16,
) -> tuple[object, ...]:
    """Random arguments of `qk_norm_mrope_and_cache_static_fp8_quant`; some elements of queries are out of range."""
    sizes = (num_tokens, num_heads, num_kv_heads, head_size)
    shared = generate_qk_norm_mrope_and_cache_inputs(*sizes, is_neox, mrope_interleaved, dtype)
    return *shared, (torch.rand(1) + 0.5) * (2 / FP8_MAX)
