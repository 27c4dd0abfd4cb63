// One translation unit: torch's headers take longer to compile than all kernels together.
#include <torch/library.h>

#include "fused_activation_quant.h"
#include "fused_moe.h"
#include "fused_norm_quant.h"
#include "fused_rope.h"
#include "gelu_and_mul.h"
#include "kv_cache.h"
#include "paged_attention.h"
#include "quantization.h"
#include "rms_norm.h"
#include "rotary_embedding.h"
#include "silu_and_mul.h"

// The schemas are defined in Python, with kernels for all other dispatch keys; these take precedence on the CPU.
TORCH_LIBRARY_IMPL(vllm_ir_cpu, CPU, m) {
  m.impl("rms_norm", vllm_ir::rms_norm);
  m.impl("fused_add_rms_norm_", vllm_ir::fused_add_rms_norm_);
  m.impl("silu_and_mul", vllm_ir::silu_and_mul);
  m.impl("gelu_and_mul", vllm_ir::gelu_and_mul);
  m.impl("rotary_embedding_", vllm_ir::rotary_embedding_);
  m.impl("static_scaled_fp8_quant", vllm_ir::static_scaled_fp8_quant);
  m.impl("dynamic_per_token_scaled_fp8_quant", vllm_ir::dynamic_per_token_scaled_fp8_quant);
  m.impl("per_token_group_fp8_quant", vllm_ir::per_token_group_fp8_quant);
  m.impl("static_scaled_int8_quant", vllm_ir::static_scaled_int8_quant);
  m.impl("dynamic_per_token_scaled_int8_quant", vllm_ir::dynamic_per_token_scaled_int8_quant);
  m.impl("per_token_group_int8_quant", vllm_ir::per_token_group_int8_quant);
  m.impl("reshape_and_cache_", vllm_ir::reshape_and_cache_);
  m.impl("concat_and_cache_mla_", vllm_ir::concat_and_cache_mla_);
  m.impl("paged_attention", vllm_ir::paged_attention);
  m.impl("fused_moe", vllm_ir::fused_moe);
  m.impl("rms_norm_static_quant", vllm_ir::rms_norm_static_quant);
  m.impl("rms_norm_token_quant", vllm_ir::rms_norm_token_quant);
  m.impl("rms_norm_group_quant", vllm_ir::rms_norm_group_quant);
  m.impl("fused_add_rms_norm_static_quant_", vllm_ir::fused_add_rms_norm_static_quant_);
  m.impl("fused_add_rms_norm_token_quant_", vllm_ir::fused_add_rms_norm_token_quant_);
  m.impl("fused_add_rms_norm_group_quant_", vllm_ir::fused_add_rms_norm_group_quant_);
  m.impl("gated_static_fp8_quant", vllm_ir::gated_static_fp8_quant);
  m.impl("gated_token_fp8_quant", vllm_ir::gated_token_fp8_quant);
  m.impl("gated_group_fp8_quant", vllm_ir::gated_group_fp8_quant);
  m.impl("qk_norm_rope", vllm_ir::qk_norm_rope);
  m.impl("rope_and_cache_", vllm_ir::rope_and_cache_);
}
