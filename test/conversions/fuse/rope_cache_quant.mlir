// RUN: vllm-ir-opt %s -p 'fuse{only=rope_cache,rope_cache_static_quant,qk_norm_rope_cache_static_quant explain=true}' --split-input-file | filecheck %s

// Two fusions, one behind the other; the program quantises before it writes the cache.
// CHECK: vllm_ir.fused = {rope_cache = ["%{{[a-z_0-9]+}}"], rope_cache_static_quant = ["%{{[a-z_0-9]+}}"]}
// CHECK-LABEL: @rows(
// CHECK-NEXT: %c, %b, %f, %g = "vllm_ir.rope_and_cache_static_fp8_quant"(%positions, %q, %k, %v, %kc, %vc, %slots, %table, %scale) <{head_size = 16 : i64, is_neox = true}>
// CHECK-NEXT: vllm_ir.return (%c, %b, %f, %g)
vllm_ir.func functional @rows(%positions: tensor<5xi64>, %q: tensor<5x64xbf16>, %k: tensor<5x32xbf16>, %v: tensor<5x32xbf16>, %kc: tensor<3x4x2x16xbf16>, %vc: tensor<3x4x2x16xbf16>, %slots: tensor<5xi64>, %table: tensor<32x16xbf16>, %scale: tensor<1xf32>) -> (tensor<5x64xf8E4M3FN>, tensor<5x32xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>) {
  %a, %b = vllm_ir.rotary_embedding %positions, %q, %k, %table {head_size = 16 : i64, is_neox = true} : tensor<5xi64>, tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<32x16xbf16> -> tensor<5x64xbf16>, tensor<5x32xbf16>
  %c = "vllm_ir.static_scaled_fp8_quant"(%a, %scale) : (tensor<5x64xbf16>, tensor<1xf32>) -> tensor<5x64xf8E4M3FN>
  %d = torch.call @aten.view.default(%b, [-1, 2, 16]) : (tensor<5x32xbf16>) -> tensor<5x2x16xbf16>
  %e = torch.call @aten.view.default(%v, [-1, 2, 16]) : (tensor<5x32xbf16>) -> tensor<5x2x16xbf16>
  %f, %g = "vllm_ir.reshape_and_cache"(%d, %e, %kc, %vc, %slots) : (tensor<5x2x16xbf16>, tensor<5x2x16xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>, tensor<5xi64>) -> (tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>)
  vllm_ir.return (%c, %b, %f, %g) : tensor<5x64xf8E4M3FN>, tensor<5x32xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>
}

// -----

// Heads are quantised, behind the write to the cache, and nobody reads the keys.
// CHECK: vllm_ir.fused = {rope_cache_static_quant = ["%{{[a-z_0-9]+}}"]}
// CHECK-LABEL: @heads(
// CHECK-NEXT: %[[ROWS:.*]], %b, %f, %g = "vllm_ir.rope_and_cache_static_fp8_quant"(%positions, %q, %k, %v, %kc, %vc, %slots, %table, %scale) <{head_size = 8 : i64, is_neox = false}>
// CHECK-NEXT: %[[HEADS:.*]] = torch.call @aten.view.default(%[[ROWS]], [-1, 4, 8]) : (tensor<5x32xf8E4M3FN>) -> tensor<5x4x8xf8E4M3FN>
// CHECK-NEXT: vllm_ir.return (%[[HEADS]], %f, %g)
vllm_ir.func functional @heads(%positions: tensor<5xi64>, %q: tensor<5x32xf32>, %k: tensor<5x16xf32>, %v: tensor<5x16xf32>, %kc: tensor<3x4x2x8xf32>, %vc: tensor<3x4x2x8xf32>, %slots: tensor<5xi64>, %table: tensor<32x8xf32>, %scale: tensor<1xf32>) -> (tensor<5x4x8xf8E4M3FN>, tensor<3x4x2x8xf32>, tensor<3x4x2x8xf32>) {
  %a, %b, %f, %g = "vllm_ir.rope_and_cache"(%positions, %q, %k, %v, %kc, %vc, %slots, %table) <{head_size = 8 : i64, is_neox = false}> : (tensor<5xi64>, tensor<5x32xf32>, tensor<5x16xf32>, tensor<5x16xf32>, tensor<3x4x2x8xf32>, tensor<3x4x2x8xf32>, tensor<5xi64>, tensor<32x8xf32>) -> (tensor<5x32xf32>, tensor<5x16xf32>, tensor<3x4x2x8xf32>, tensor<3x4x2x8xf32>)
  %c = torch.call @aten.view.default(%a, [5, 4, 8]) : (tensor<5x32xf32>) -> tensor<5x4x8xf32>
  %d = "vllm_ir.static_scaled_fp8_quant"(%c, %scale) : (tensor<5x4x8xf32>, tensor<1xf32>) -> tensor<5x4x8xf8E4M3FN>
  vllm_ir.return (%d, %f, %g) : tensor<5x4x8xf8E4M3FN>, tensor<3x4x2x8xf32>, tensor<3x4x2x8xf32>
}

// -----

// With the norms of heads.
// CHECK: vllm_ir.fused = {qk_norm_rope_cache_static_quant = ["%{{[a-z_0-9]+}}"]}
// CHECK-LABEL: @normed(
// CHECK-NEXT: %f, %b, %c, %d, %e = "vllm_ir.qk_norm_rope_and_cache_static_fp8_quant"(%qkv, %positions, %table, %kc, %vc, %slots, %scale) <{{{.*}}epsilon = 1.000000e-05 : f64, num_heads = 4 : i64, num_kv_heads = 2 : i64, head_size = 16 : i64, is_neox = true
// CHECK-NEXT: vllm_ir.return (%f, %d, %e)
vllm_ir.func functional @normed(%qkv: tensor<5x128xf16>, %positions: tensor<5xi64>, %table: tensor<32x16xf16>, %kc: tensor<3x4x2x16xf16>, %vc: tensor<3x4x2x16xf16>, %slots: tensor<5xi64>, %scale: tensor<1xf32>) -> (tensor<5x64xf8E4M3FN>, tensor<3x4x2x16xf16>, tensor<3x4x2x16xf16>) {
  %a, %b, %c, %d, %e = "vllm_ir.qk_norm_rope_and_cache"(%qkv, %positions, %table, %kc, %vc, %slots) <{epsilon = 1.0e-05 : f64, num_heads = 4 : i64, num_kv_heads = 2 : i64, head_size = 16 : i64, is_neox = true, operandSegmentSizes = array<i32: 1, 1, 0, 0, 1, 1, 1, 1>}> : (tensor<5x128xf16>, tensor<5xi64>, tensor<32x16xf16>, tensor<3x4x2x16xf16>, tensor<3x4x2x16xf16>, tensor<5xi64>) -> (tensor<5x64xf16>, tensor<5x32xf16>, tensor<5x32xf16>, tensor<3x4x2x16xf16>, tensor<3x4x2x16xf16>)
  %f = "vllm_ir.static_scaled_fp8_quant"(%a, %scale) : (tensor<5x64xf16>, tensor<1xf32>) -> tensor<5x64xf8E4M3FN>
  vllm_ir.return (%f, %d, %e) : tensor<5x64xf8E4M3FN>, tensor<3x4x2x16xf16>, tensor<3x4x2x16xf16>
}

// -----

// The queries are read as they were, too.
// CHECK: vllm_ir.fused = {rope_cache = ["%{{[a-z_0-9]+}}"]}
// CHECK: vllm_ir.unfused = {{.*}}rope_cache_static_quant = ["{{.*}}%a is also used by %h"
// CHECK-LABEL: @queries_read(
// CHECK-NOT: static_fp8_quant
// CHECK: vllm_ir.return
vllm_ir.func functional @queries_read(%positions: tensor<5xi64>, %q: tensor<5x64xbf16>, %k: tensor<5x32xbf16>, %v: tensor<5x32xbf16>, %kc: tensor<3x4x2x16xbf16>, %vc: tensor<3x4x2x16xbf16>, %slots: tensor<5xi64>, %table: tensor<32x16xbf16>, %scale: tensor<1xf32>) -> (tensor<5x64xf8E4M3FN>, tensor<5x64xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>) {
  %a, %b = vllm_ir.rotary_embedding %positions, %q, %k, %table {head_size = 16 : i64, is_neox = true} : tensor<5xi64>, tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<32x16xbf16> -> tensor<5x64xbf16>, tensor<5x32xbf16>
  %d = torch.call @aten.view.default(%b, [-1, 2, 16]) : (tensor<5x32xbf16>) -> tensor<5x2x16xbf16>
  %e = torch.call @aten.view.default(%v, [-1, 2, 16]) : (tensor<5x32xbf16>) -> tensor<5x2x16xbf16>
  %f, %g = "vllm_ir.reshape_and_cache"(%d, %e, %kc, %vc, %slots) : (tensor<5x2x16xbf16>, tensor<5x2x16xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>, tensor<5xi64>) -> (tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>)
  %c = "vllm_ir.static_scaled_fp8_quant"(%a, %scale) : (tensor<5x64xbf16>, tensor<1xf32>) -> tensor<5x64xf8E4M3FN>
  %h = torch.call @aten.relu.default(%a) : (tensor<5x64xbf16>) -> tensor<5x64xbf16>
  vllm_ir.return (%c, %h, %f, %g) : tensor<5x64xf8E4M3FN>, tensor<5x64xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>
}

// -----

// It is the keys that are quantised.
// CHECK: vllm_ir.fused = {rope_cache = ["%{{[a-z_0-9]+}}"]}
// CHECK: vllm_ir.unfused = {{.*}}rope_cache_static_quant = ["{{.*}}%b is another result than expected"
// CHECK-LABEL: @keys(
// CHECK-NOT: static_fp8_quant
// CHECK: vllm_ir.return
vllm_ir.func functional @keys(%positions: tensor<5xi64>, %q: tensor<5x64xbf16>, %k: tensor<5x32xbf16>, %v: tensor<5x32xbf16>, %kc: tensor<3x4x2x16xbf16>, %vc: tensor<3x4x2x16xbf16>, %slots: tensor<5xi64>, %table: tensor<32x16xbf16>, %scale: tensor<1xf32>) -> (tensor<5x32xf8E4M3FN>, tensor<5x64xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>) {
  %a, %b = vllm_ir.rotary_embedding %positions, %q, %k, %table {head_size = 16 : i64, is_neox = true} : tensor<5xi64>, tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<32x16xbf16> -> tensor<5x64xbf16>, tensor<5x32xbf16>
  %d = torch.call @aten.view.default(%b, [-1, 2, 16]) : (tensor<5x32xbf16>) -> tensor<5x2x16xbf16>
  %e = torch.call @aten.view.default(%v, [-1, 2, 16]) : (tensor<5x32xbf16>) -> tensor<5x2x16xbf16>
  %f, %g = "vllm_ir.reshape_and_cache"(%d, %e, %kc, %vc, %slots) : (tensor<5x2x16xbf16>, tensor<5x2x16xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>, tensor<5xi64>) -> (tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>)
  %c = "vllm_ir.static_scaled_fp8_quant"(%b, %scale) : (tensor<5x32xbf16>, tensor<1xf32>) -> tensor<5x32xf8E4M3FN>
  vllm_ir.return (%c, %a, %f, %g) : tensor<5x32xf8E4M3FN>, tensor<5x64xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>
}
