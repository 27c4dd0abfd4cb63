"""Operators with the schemas that vLLM registers; with the variable, those of older releases that differ."""

import os

import standin_kernels as kernels
import torch
import torch.nn.functional as F

_C = torch.library.Library("_C", "FRAGMENT")
_C_cache_ops = torch.library.Library("_C_cache_ops", "FRAGMENT")

NEW = {
    "rms_norm(Tensor! result, Tensor input, Tensor weight, float epsilon) -> ()": kernels.rms_norm,
    "fused_add_rms_norm(Tensor! input, Tensor! residual, Tensor weight, float epsilon) -> ()": (
        kernels.fused_add_rms_norm
    ),
    "silu_and_mul(Tensor! result, Tensor input) -> ()": kernels.gated(F.silu),
    "gelu_and_mul(Tensor! out, Tensor input) -> ()": kernels.gated(F.gelu),
    "gelu_tanh_and_mul(Tensor! out, Tensor input) -> ()": kernels.gated(lambda x: F.gelu(x, approximate="tanh")),
    "rotary_embedding(Tensor positions, Tensor! query, Tensor!? key, int head_size, Tensor cos_sin_cache, "
    "bool is_neox, int rope_dim_offset=0, bool inverse=False) -> ()": kernels.rotary_embedding,
    "static_scaled_fp8_quant(Tensor! result, Tensor input, Tensor scale, int[]? group_shape=None) -> ()": (
        kernels.static_scaled_fp8_quant
    ),
    "dynamic_per_token_scaled_fp8_quant(Tensor! result, Tensor input, Tensor! scale, Tensor? scale_ub) -> ()": (
        kernels.dynamic_per_token_scaled_fp8_quant
    ),
    "per_token_group_fp8_quant(Tensor input, Tensor! output_q, Tensor! output_s, int group_size, float eps, "
    "float fp8_min, float fp8_max, bool scale_ue8m0, bool dummy_is_scale_transposed, bool dummy_is_tma_aligned "
    ") -> ()": kernels.per_token_group_fp8_quant,
    "static_scaled_int8_quant(Tensor! result, Tensor input, Tensor scale,Tensor? azp) -> ()": (
        kernels.static_scaled_int8_quant
    ),
    "dynamic_scaled_int8_quant(Tensor! result, Tensor input, Tensor! scale, Tensor!? azp) -> ()": (
        kernels.dynamic_scaled_int8_quant
    ),
}
OLD = {
    "rotary_embedding(Tensor positions, Tensor! query, Tensor!? key, int head_size, Tensor cos_sin_cache, "
    "bool is_neox) -> ()": kernels.rotary_embedding,
    "static_scaled_fp8_quant(Tensor! result, Tensor input, Tensor scale, (int, int)? group_shape=None) -> ()": (
        kernels.static_scaled_fp8_quant
    ),
    "per_token_group_fp8_quant(Tensor input, Tensor! output_q, Tensor! output_s, int group_size, float eps, "
    "float fp8_min, float fp8_max, bool scale_ue8m0) -> ()": kernels.per_token_group_fp8_quant,
}
for schema, kernel in (OLD if "STANDIN_IS_OLD" in os.environ else NEW).items():
    kernels.define(_C, schema, kernel)
kernels.define(
    _C_cache_ops,
    "reshape_and_cache_flash(Tensor key, Tensor value, Tensor! key_cache, Tensor! value_cache, Tensor slot_mapping, "
    "str kv_cache_dtype, Tensor k_scale, Tensor v_scale) -> ()",
    kernels.reshape_and_cache_flash,
)
