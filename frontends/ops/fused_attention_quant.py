"""Paged attention whose result is quantised: both parts one after the other, bit for bit."""

import torch
from torch import Tensor

from vllm_ir.frontends.ops.attention import attended, generate_paged_attention_inputs
from vllm_ir.frontends.ops.quantization import FP8_MAX, static_fp8
from vllm_ir.frontends.ops.registry import register_op


@register_op
def paged_attention_static_fp8_quant(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    query_start: Tensor,
    scale: float,
    output_scale: Tensor,
    sliding_window: int | None = None,
    soft_cap: float | None = None,
) -> Tensor:
    """`static_scaled_fp8_quant` of what `paged_attention` gives, its heads one behind the other.

    Args:
        query: floating, `[tokens, heads, head_size]`; attention is rounded to its dtype before it is quantised.
        key_cache: floating, `[blocks, block_size, kv_heads, head_size]`.
        value_cache: likewise.
        block_table: int32 or int64, `[sequences, max_blocks]`.
        seq_lens: int32 or int64, `[sequences]`.
        query_start: int32 or int64, `[sequences + 1]`.
        scale: factor of the products of queries and keys.
        output_scale: of the quantisation, float32, one element.
        sliding_window: how many keys a token sees, or None.
        soft_cap: bounds the scores, or None.

    Returns:
        float8_e4m3fn, `[tokens, heads * head_size]`.

    Raises:
        ValueError: an argument's dtype or shape does not fit, or `sliding_window` or `soft_cap` is not positive.
        IndexError: there are not that many blocks in the cache.
    """
    op = "paged_attention_static_fp8_quant"
    places = (block_table, seq_lens, query_start)
    heads = attended(op, query, key_cache, value_cache, *places, scale, sliding_window, soft_cap)
    return static_fp8(op, heads.flatten(1), output_scale, "output_scale")


@paged_attention_static_fp8_quant.register_input_generator
def generate_paged_attention_static_fp8_quant_inputs(
    num_tokens: int = 16, num_heads: int = 4, num_kv_heads: int = 2, dtype: torch.dtype = torch.bfloat16
) -> tuple[object, ...]:
    """Random arguments, as those of `paged_attention`; some elements are out of range."""
    inputs = generate_paged_attention_inputs(
        num_tokens, num_heads=num_heads, num_kv_heads=num_kv_heads, head_size=32, dtype=dtype
    )
    return *inputs, (torch.rand(1) + 0.5) * (1 / FP8_MAX)
