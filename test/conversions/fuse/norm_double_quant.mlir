// RUN: vllm-ir-opt %s -p 'fuse{only=rms_norm_double_quant,rms_norm_static_quant,rms_norm_per_token_group_quant explain=true}' --split-input-file | filecheck %s

// CHECK: vllm_ir.fused = {rms_norm_double_quant = ["%{{[a-z_0-9]+}}"]}
// CHECK-LABEL: @scales(
// CHECK-NEXT: %[[A:.]], %[[B:.]], %s = "vllm_ir.fused_add_rms_norm_double_static_fp8_quant"(%x, %r, %w, %{{[ij]}}, %{{[ij]}}) <{epsilon = 1.000000e-05 : f64
// CHECK-NEXT: vllm_ir.return (%a, %b, %s)
vllm_ir.func functional @scales(%x: tensor<3x8xbf16>, %r: tensor<3x8xbf16>, %w: tensor<8xbf16>, %i: tensor<1xf32>, %j: tensor<1xf32>) -> (tensor<3x8xf8E4M3FN>, tensor<3x8xf8E4M3FN>, tensor<3x8xbf16>) {
  %n, %s = vllm_ir.fused_add_rms_norm %x, %r : tensor<3x8xbf16>, tensor<3x8xbf16> weight %w : tensor<8xbf16> {epsilon = 1.0e-05 : f64} -> tensor<3x8xbf16>, tensor<3x8xbf16>
  %a = "vllm_ir.static_scaled_fp8_quant"(%n, %i) : (tensor<3x8xbf16>, tensor<1xf32>) -> tensor<3x8xf8E4M3FN>
  %b = "vllm_ir.static_scaled_fp8_quant"(%n, %j) : (tensor<3x8xbf16>, tensor<1xf32>) -> tensor<3x8xf8E4M3FN>
  vllm_ir.return (%a, %b, %s) : tensor<3x8xf8E4M3FN>, tensor<3x8xf8E4M3FN>, tensor<3x8xbf16>
}

// -----

// Other groups, other flags, the one with powers of two comes second in the program.
// CHECK: vllm_ir.fused = {rms_norm_double_quant = ["%{{[a-z_0-9]+}}"]}
// CHECK-LABEL: @groups(
// CHECK-NEXT: %c, %d, %a, %b = "vllm_ir.rms_norm_double_per_token_group_fp8_quant"(%x) <{epsilon = 1.000000e-05 : f64, group_size = 2 : i64, other_group_size = 4 : i64, use_ue8m0 = true, other_use_ue8m0 = false, quant_epsilon = 1.000000e-08 : f64, other_quant_epsilon = 1.000000e-10 : f64
// CHECK-NEXT: vllm_ir.return (%a, %b, %c, %d)
vllm_ir.func functional @groups(%x: tensor<3x8xf32>) -> (tensor<3x8xf8E4M3FN>, tensor<3x2xf32>, tensor<3x8xf8E4M3FN>, tensor<3x4xf32>) {
  %n = vllm_ir.rms_norm %x : tensor<3x8xf32> {epsilon = 1.0e-05 : f64} -> tensor<3x8xf32>
  %a, %b = "vllm_ir.per_token_group_fp8_quant"(%n) <{group_size = 4 : i64, use_ue8m0 = false, epsilon = 1.0e-10 : f64}> : (tensor<3x8xf32>) -> (tensor<3x8xf8E4M3FN>, tensor<3x2xf32>)
  %c, %d = "vllm_ir.per_token_group_fp8_quant"(%n) <{group_size = 2 : i64, use_ue8m0 = true, epsilon = 1.0e-08 : f64}> : (tensor<3x8xf32>) -> (tensor<3x8xf8E4M3FN>, tensor<3x4xf32>)
  vllm_ir.return (%a, %b, %c, %d) : tensor<3x8xf8E4M3FN>, tensor<3x2xf32>, tensor<3x8xf8E4M3FN>, tensor<3x4xf32>
}

// -----

// Three quantisations of one norm, of which a pattern has two.
// CHECK-NOT: vllm_ir.fused =
// CHECK: rms_norm_double_quant = ["%n: vllm_ir.rms_norm: %n is also used by
// CHECK-LABEL: @three(
// CHECK-NOT: rms_norm_double
// CHECK: vllm_ir.return
vllm_ir.func functional @three(%x: tensor<3x8xf32>, %i: tensor<1xf32>, %j: tensor<1xf32>, %k: tensor<1xf32>) -> (tensor<3x8xf8E4M3FN>, tensor<3x8xf8E4M3FN>, tensor<3x8xf8E4M3FN>) {
  %n = vllm_ir.rms_norm %x : tensor<3x8xf32> {epsilon = 1.0e-05 : f64} -> tensor<3x8xf32>
  %a = "vllm_ir.static_scaled_fp8_quant"(%n, %i) : (tensor<3x8xf32>, tensor<1xf32>) -> tensor<3x8xf8E4M3FN>
  %b = "vllm_ir.static_scaled_fp8_quant"(%n, %j) : (tensor<3x8xf32>, tensor<1xf32>) -> tensor<3x8xf8E4M3FN>
  %c = "vllm_ir.static_scaled_fp8_quant"(%n, %k) : (tensor<3x8xf32>, tensor<1xf32>) -> tensor<3x8xf8E4M3FN>
  vllm_ir.return (%a, %b, %c) : tensor<3x8xf8E4M3FN>, tensor<3x8xf8E4M3FN>, tensor<3x8xf8E4M3FN>
}

// -----

// Of one norm a quantisation by a scale and one by groups.
// CHECK-NOT: vllm_ir.fused =
// CHECK-LABEL: @two_kinds(
// CHECK-NOT: rms_norm_double
// CHECK: vllm_ir.return
vllm_ir.func functional @two_kinds(%x: tensor<3x8xf32>, %i: tensor<1xf32>) -> (tensor<3x8xf8E4M3FN>, tensor<3x8xf8E4M3FN>, tensor<3x2xf32>) {
  %n = vllm_ir.rms_norm %x : tensor<3x8xf32> {epsilon = 1.0e-05 : f64} -> tensor<3x8xf32>
  %a = "vllm_ir.static_scaled_fp8_quant"(%n, %i) : (tensor<3x8xf32>, tensor<1xf32>) -> tensor<3x8xf8E4M3FN>
  %b, %c = "vllm_ir.per_token_group_fp8_quant"(%n) <{group_size = 4 : i64, use_ue8m0 = false, epsilon = 1.0e-10 : f64}> : (tensor<3x8xf32>) -> (tensor<3x8xf8E4M3FN>, tensor<3x2xf32>)
  vllm_ir.return (%a, %b, %c) : tensor<3x8xf8E4M3FN>, tensor<3x8xf8E4M3FN>, tensor<3x2xf32>
}
