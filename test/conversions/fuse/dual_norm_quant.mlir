// RUN: vllm-ir-opt %s -p 'fuse{only=dual_rms_norm,dual_rms_norm_dynamic_per_token_quant,dual_rms_norm_per_token_group_quant,rms_norm_dynamic_per_token_quant,rms_norm_per_token_group_quant explain=true}' --split-input-file | filecheck %s

// Both norms first, and not one of them with its quantisation.
// CHECK: vllm_ir.fused = {dual_rms_norm = ["%{{[a-z_0-9]+}}"], dual_rms_norm_dynamic_per_token_quant = ["%{{[a-z_0-9]+}}"]}
// CHECK-LABEL: @per_token(
// CHECK-NEXT: %[[A:.*]], %[[B:.*]] = torch.call @aten.split_with_sizes.default(%x, [24, 16], -1)
// CHECK-NEXT: %d, %e, %[[F:.*]] = "vllm_ir.dual_rms_norm_dynamic_per_token_fp8_quant"(%[[A]], %[[B]], %w, %v)
// CHECK-NEXT: vllm_ir.return (%d, %e, %[[F]])
vllm_ir.func functional @per_token(%x: tensor<5x40xbf16>, %w: tensor<24xbf16>, %v: tensor<16xbf16>) -> (tensor<5x24xf8E4M3FN>, tensor<5x1xf32>, tensor<5x16xbf16>) {
  %a, %b = torch.call @aten.split_with_sizes.default(%x, [24, 16], -1) : (tensor<5x40xbf16>) -> (tensor<5x24xbf16, #vllm_ir.layout<strides = [40, 1]>>, tensor<5x16xbf16, #vllm_ir.layout<strides = [40, 1]>>)
  %c = vllm_ir.rms_norm %a : tensor<5x24xbf16, #vllm_ir.layout<strides = [40, 1]>> weight %w : tensor<24xbf16> {epsilon = 1.0e-06 : f64} -> tensor<5x24xbf16>
  %d, %e = "vllm_ir.dynamic_per_token_scaled_fp8_quant"(%c) : (tensor<5x24xbf16>) -> (tensor<5x24xf8E4M3FN>, tensor<5x1xf32>)
  %f = vllm_ir.rms_norm %b : tensor<5x16xbf16, #vllm_ir.layout<strides = [40, 1]>> weight %v : tensor<16xbf16> {epsilon = 1.0e-06 : f64} -> tensor<5x16xbf16>
  vllm_ir.return (%d, %e, %f) : tensor<5x24xf8E4M3FN>, tensor<5x1xf32>, tensor<5x16xbf16>
}

// -----

// The program has the op for both norms.
// CHECK: vllm_ir.fused = {dual_rms_norm_per_token_group_quant = ["%{{[a-z_0-9]+}}"]}
// CHECK-LABEL: @groups(
// CHECK-NEXT: %d, %e, %f = "vllm_ir.dual_rms_norm_per_token_group_fp8_quant"(%x, %y, %w) <{epsilon = 1.000000e-06 : f64, group_size = 8 : i64, use_ue8m0 = true, quant_epsilon = 1.000000e-08 : f64
// CHECK-NEXT: vllm_ir.return (%d, %e, %f)
vllm_ir.func functional @groups(%x: tensor<5x24xf32>, %y: tensor<5x16xf32>, %w: tensor<24xf32>) -> (tensor<5x24xf8E4M3FN>, tensor<5x3xf32>, tensor<5x16xf32>) {
  %c, %f = "vllm_ir.dual_rms_norm"(%x, %y, %w) <{epsilon = 1.0e-06 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0>}> : (tensor<5x24xf32>, tensor<5x16xf32>, tensor<24xf32>) -> (tensor<5x24xf32>, tensor<5x16xf32>)
  %d, %e = "vllm_ir.per_token_group_fp8_quant"(%c) <{group_size = 8 : i64, use_ue8m0 = true, epsilon = 1.0e-08 : f64}> : (tensor<5x24xf32>) -> (tensor<5x24xf8E4M3FN>, tensor<5x3xf32>)
  vllm_ir.return (%d, %e, %f) : tensor<5x24xf8E4M3FN>, tensor<5x3xf32>, tensor<5x16xf32>
}

// -----

// It is the second that is quantised.
// CHECK-NOT: vllm_ir.fused =
// CHECK: dual_rms_norm_per_token_group_quant = ["{{.*}}%f is another result than expected"
// CHECK-LABEL: @second(
// CHECK-NOT: dual_rms_norm_per_token
// CHECK: vllm_ir.return
vllm_ir.func functional @second(%x: tensor<5x24xf32>, %y: tensor<5x16xf32>, %w: tensor<24xf32>) -> (tensor<5x24xf32>, tensor<5x16xf8E4M3FN>, tensor<5x2xf32>) {
  %c, %f = "vllm_ir.dual_rms_norm"(%x, %y, %w) <{epsilon = 1.0e-06 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0>}> : (tensor<5x24xf32>, tensor<5x16xf32>, tensor<24xf32>) -> (tensor<5x24xf32>, tensor<5x16xf32>)
  %d, %e = "vllm_ir.per_token_group_fp8_quant"(%f) <{group_size = 8 : i64, use_ue8m0 = false, epsilon = 1.0e-08 : f64}> : (tensor<5x16xf32>) -> (tensor<5x16xf8E4M3FN>, tensor<5x2xf32>)
  vllm_ir.return (%c, %d, %e) : tensor<5x24xf32>, tensor<5x16xf8E4M3FN>, tensor<5x2xf32>
}

// -----

// The first is read as it is, too.
// CHECK-NOT: vllm_ir.fused =
// CHECK: dual_rms_norm_per_token_group_quant = ["%c: vllm_ir.dual_rms_norm: %c is also used by
// CHECK-LABEL: @read(
// CHECK-NOT: dual_rms_norm_per_token
// CHECK: vllm_ir.return
vllm_ir.func functional @read(%x: tensor<5x24xf32>, %y: tensor<5x16xf32>, %w: tensor<24xf32>) -> (tensor<5x24xf32>, tensor<5x24xf8E4M3FN>, tensor<5x3xf32>) {
  %c, %f = "vllm_ir.dual_rms_norm"(%x, %y, %w) <{epsilon = 1.0e-06 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0>}> : (tensor<5x24xf32>, tensor<5x16xf32>, tensor<24xf32>) -> (tensor<5x24xf32>, tensor<5x16xf32>)
  %d, %e = "vllm_ir.per_token_group_fp8_quant"(%c) <{group_size = 8 : i64, use_ue8m0 = false, epsilon = 1.0e-08 : f64}> : (tensor<5x24xf32>) -> (tensor<5x24xf8E4M3FN>, tensor<5x3xf32>)
  vllm_ir.return (%c, %d, %e) : tensor<5x24xf32>, tensor<5x24xf8E4M3FN>, tensor<5x3xf32>
}
