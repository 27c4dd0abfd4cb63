"""Provider `cpu` of fused ops that have no kernel of their own: the kernels of the parts, one after the other.

With them, a program whose parts ran by these kernels does so after a fusion too.
"""

from torch import Tensor

from vllm_ir.backends.kernels.cpu.attention import PAGED_ATTENTION, takes_paged_attention
from vllm_ir.backends.kernels.cpu.build import KERNEL_FILES
from vllm_ir.backends.kernels.cpu.fused_rope import QK_NORM_ROPE, takes_qk_norm_rope
from vllm_ir.backends.kernels.cpu.kv_cache import (
    CONCAT_AND_CACHE_MLA_,
    RESHAPE_AND_CACHE_,
    takes_concat_and_cache_mla,
    takes_reshape_and_cache,
)
from vllm_ir.backends.kernels.cpu.library import RMS_NORM, ROTARY_EMBEDDING_, call
from vllm_ir.backends.kernels.cpu.providers import PROVIDER, SUPPORTED, takes_norm, takes_rotary_embedding
from vllm_ir.backends.kernels.cpu.quantization import STATIC_SCALED_FP8_QUANT, takes_one_number
from vllm_ir.frontends.ops import ops


def _takes_dual_rms_norm(
    x: Tensor, y: Tensor, x_weight: Tensor | None, y_weight: Tensor | None, _epsilon: float
) -> bool:
    return takes_norm(x, x_weight, None) and takes_norm(y, y_weight, None)


@ops.dual_rms_norm.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, batch_invariant=True, supports_args=_takes_dual_rms_norm
)
def dual_rms_norm(
    x: Tensor, y: Tensor, x_weight: Tensor | None, y_weight: Tensor | None, epsilon: float
) -> tuple[Tensor, Tensor]:
    """`dual_rms_norm` by two calls, into new tensors."""
    (x_normed,) = call(RMS_NORM, x, x_weight, epsilon)
    (y_normed,) = call(RMS_NORM, y, y_weight, epsilon)
    return x_normed, y_normed


def _takes_mla_rope_and_cache(
    positions: Tensor,
    q_pe: Tensor,
    k_pe: Tensor,
    kv_c: Tensor,
    kv_cache: Tensor,
    slot_mapping: Tensor,
    cos_sin_cache: Tensor,
    is_neox: bool,
) -> bool:
    return (
        (q_pe.dim(), k_pe.dim()) == (3, 2)
        and takes_rotary_embedding(positions, q_pe, k_pe, k_pe.shape[1], cos_sin_cache, is_neox, None)
        and takes_concat_and_cache_mla(kv_c, k_pe, kv_cache, slot_mapping)
    )


@ops.mla_rope_and_cache.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, supports_args=_takes_mla_rope_and_cache, inplace=True
)
def mla_rope_and_cache(
    positions: Tensor,
    q_pe: Tensor,
    k_pe: Tensor,
    kv_c: Tensor,
    kv_cache: Tensor,
    slot_mapping: Tensor,
    cos_sin_cache: Tensor,
    is_neox: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """`mla_rope_and_cache` in place of `q_pe`, `k_pe` and the cache, by two calls."""
    ROTARY_EMBEDDING_(positions, q_pe, k_pe, k_pe.shape[1], cos_sin_cache, is_neox)
    CONCAT_AND_CACHE_MLA_(kv_c, k_pe, kv_cache, slot_mapping)
    return q_pe, k_pe, kv_cache


def _takes_qk_norm_rope_and_cache(
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
    rotary_dim: int | None,
) -> bool:
    heads = (num_heads, num_kv_heads, head_size)
    if not takes_qk_norm_rope(qkv, positions, q_weight, k_weight, epsilon, *heads, cos_sin_cache, is_neox, rotary_dim):
        return False
    # Laid out as the new keys and values will be.
    new = qkv[..., : num_kv_heads * head_size].view((*qkv.shape[:-1], num_kv_heads, head_size))
    return takes_reshape_and_cache(new, new, key_cache, value_cache, slot_mapping)


@ops.qk_norm_rope_and_cache.register_impl(
    PROVIDER,
    supported=SUPPORTED,
    sources=KERNEL_FILES,
    supports_args=_takes_qk_norm_rope_and_cache,
    inplace=["key_cache", "value_cache"],
)
def qk_norm_rope_and_cache(
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
    rotary_dim: int | None = None,  # noqa: ARG001  # always the table's width, as checked above
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """`qk_norm_rope_and_cache` in place of the caches, by two calls."""
    heads = (num_heads, num_kv_heads, head_size)
    query, key, value = call(QK_NORM_ROPE, qkv, positions, q_weight, k_weight, epsilon, *heads, cos_sin_cache, is_neox)
    new = (piece.view((*piece.shape[:-1], num_kv_heads, head_size)) for piece in (key, value))
    RESHAPE_AND_CACHE_(*new, key_cache, value_cache, slot_mapping)
    return query, key, value, key_cache, value_cache


def _takes_paged_attention_quant(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    query_start: Tensor,
    scale: float,
    output_scale: Tensor,
    sliding_window: int | None,
    soft_cap: float | None,
) -> bool:
    places = (block_table, seq_lens, query_start)
    return takes_one_number(output_scale) and takes_paged_attention(
        query, key_cache, value_cache, *places, scale, sliding_window, soft_cap
    )


@ops.paged_attention_static_fp8_quant.register_impl(
    PROVIDER, supported=SUPPORTED, sources=KERNEL_FILES, supports_args=_takes_paged_attention_quant
)
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
    """`paged_attention_static_fp8_quant` into a new tensor, by two calls."""
    places = (block_table, seq_lens, query_start)
    (heads,) = call(PAGED_ATTENTION, query, key_cache, value_cache, *places, scale, sliding_window, soft_cap)
    (quantized,) = call(STATIC_SCALED_FP8_QUANT, heads.flatten(1), output_scale)
    return quantized
