// RUN: vllm-ir-opt %s -p 'fuse{only=rms_norm_static_quant,rms_norm_dynamic_per_token_quant,rms_norm_per_token_group_quant explain=true}' --split-input-file | filecheck %s

// CHECK: vllm_ir.fused = {rms_norm_static_quant = ["%b"]}
// CHECK-LABEL: @static(
// CHECK-NEXT: %b = "vllm_ir.rms_norm_static_fp8_quant"(%x, %w, %s) <{epsilon = 1.000000e-08 : f64}>
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @static(%x: tensor<3x16xbf16>, %w: tensor<16xbf16>, %s: tensor<1xf32>) -> tensor<3x16xf8E4M3FN> {
  %a = vllm_ir.rms_norm %x : tensor<3x16xbf16> weight %w : tensor<16xbf16> {epsilon = 1.000000e-08 : f64} -> tensor<3x16xbf16>
  %b = "vllm_ir.static_scaled_fp8_quant"(%a, %s) : (tensor<3x16xbf16>, tensor<1xf32>) -> tensor<3x16xf8E4M3FN>
  vllm_ir.return %b : tensor<3x16xf8E4M3FN>
}

// -----

// The sum is a result of its own, and goes on to be used.
// CHECK: vllm_ir.fused = {rms_norm_static_quant = ["%c"]}
// CHECK-LABEL: @static_residual(
// CHECK-NEXT: %c, %b = "vllm_ir.fused_add_rms_norm_static_fp8_quant"(%x, %r, %w, %s) <{epsilon = 1.000000e-05 : f64}>
// CHECK-NEXT: %d = torch.call @aten.mul.Tensor(%b, 2)
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @static_residual(%x: tensor<3x16xbf16>, %r: tensor<3x16xbf16>, %w: tensor<16xbf16>, %s: tensor<1xf32>) -> (tensor<3x16xf8E4M3FN>, tensor<3x16xbf16>, tensor<3x16xbf16>) {
  %a, %b = vllm_ir.fused_add_rms_norm %x, %r : tensor<3x16xbf16>, tensor<3x16xbf16> weight %w : tensor<16xbf16> {epsilon = 1.000000e-05 : f64} -> tensor<3x16xbf16>, tensor<3x16xbf16>
  %c = "vllm_ir.static_scaled_fp8_quant"(%a, %s) : (tensor<3x16xbf16>, tensor<1xf32>) -> tensor<3x16xf8E4M3FN>
  %d = torch.call @aten.mul.Tensor(%b, 2) : (tensor<3x16xbf16>) -> tensor<3x16xbf16>
  vllm_ir.return (%c, %b, %d) : tensor<3x16xf8E4M3FN>, tensor<3x16xbf16>, tensor<3x16xbf16>
}

// -----

// Without a weight, to int8.
// CHECK: vllm_ir.fused = {rms_norm_static_quant = ["%b"]}
// CHECK-LABEL: @static_int8(
// CHECK-NEXT: %b = "vllm_ir.rms_norm_static_int8_quant"(%x, %s) <{epsilon = 1.000000e-06 : f64}>
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @static_int8(%x: tensor<3x16xf32>, %s: tensor<1xf32>) -> tensor<3x16xi8> {
  %a = vllm_ir.rms_norm %x : tensor<3x16xf32> {epsilon = 1.000000e-06 : f64} -> tensor<3x16xf32>
  %b = "vllm_ir.static_scaled_int8_quant"(%a, %s) : (tensor<3x16xf32>, tensor<1xf32>) -> tensor<3x16xi8>
  vllm_ir.return %b : tensor<3x16xi8>
}

// -----

// CHECK: vllm_ir.fused = {rms_norm_dynamic_per_token_quant = ["%c"]}
// CHECK-LABEL: @dynamic_residual(
// CHECK-NEXT: %c, %d, %b = "vllm_ir.fused_add_rms_norm_dynamic_per_token_fp8_quant"(%x, %r, %w, %u) <{epsilon = 1.000000e-06 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 1>}>
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @dynamic_residual(%x: tensor<3x16xbf16>, %r: tensor<3x16xbf16>, %w: tensor<16xbf16>, %u: tensor<1xf32>) -> (tensor<3x16xf8E4M3FN>, tensor<3x1xf32>, tensor<3x16xbf16>) {
  %a, %b = vllm_ir.fused_add_rms_norm %x, %r : tensor<3x16xbf16>, tensor<3x16xbf16> weight %w : tensor<16xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<3x16xbf16>, tensor<3x16xbf16>
  %c, %d = "vllm_ir.dynamic_per_token_scaled_fp8_quant"(%a, %u) : (tensor<3x16xbf16>, tensor<1xf32>) -> (tensor<3x16xf8E4M3FN>, tensor<3x1xf32>)
  vllm_ir.return (%c, %d, %b) : tensor<3x16xf8E4M3FN>, tensor<3x1xf32>, tensor<3x16xbf16>
}

// -----

// CHECK: vllm_ir.fused = {rms_norm_dynamic_per_token_quant = ["%b"]}
// CHECK-LABEL: @dynamic(
// CHECK-NEXT: %b, %c = "vllm_ir.rms_norm_dynamic_per_token_fp8_quant"(%x, %w) <{epsilon = 1.000000e-06 : f64, operandSegmentSizes = array<i32: 1, 1, 0>}>
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @dynamic(%x: tensor<3x16xf16>, %w: tensor<16xf16>) -> (tensor<3x16xf8E4M3FN>, tensor<3x1xf32>) {
  %a = vllm_ir.rms_norm %x : tensor<3x16xf16> weight %w : tensor<16xf16> {epsilon = 1.000000e-06 : f64} -> tensor<3x16xf16>
  %b, %c = "vllm_ir.dynamic_per_token_scaled_fp8_quant"(%a) : (tensor<3x16xf16>) -> (tensor<3x16xf8E4M3FN>, tensor<3x1xf32>)
  vllm_ir.return (%b, %c) : tensor<3x16xf8E4M3FN>, tensor<3x1xf32>
}

// -----

// CHECK: vllm_ir.fused = {rms_norm_dynamic_per_token_quant = ["%b"]}
// CHECK-LABEL: @dynamic_int8(
// CHECK-NEXT: %b, %c = "vllm_ir.rms_norm_dynamic_per_token_int8_quant"(%x, %w) <{epsilon = 1.000000e-06 : f64}>
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @dynamic_int8(%x: tensor<3x16xbf16>, %w: tensor<16xbf16>) -> (tensor<3x16xi8>, tensor<3x1xf32>) {
  %a = vllm_ir.rms_norm %x : tensor<3x16xbf16> weight %w : tensor<16xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<3x16xbf16>
  %b, %c = "vllm_ir.dynamic_per_token_scaled_int8_quant"(%a) : (tensor<3x16xbf16>) -> (tensor<3x16xi8>, tensor<3x1xf32>)
  vllm_ir.return (%b, %c) : tensor<3x16xi8>, tensor<3x1xf32>
}

// -----

// Powers of two, and the least scale, go along.
// CHECK: vllm_ir.fused = {rms_norm_per_token_group_quant = ["%b"]}
// CHECK-LABEL: @group(
// CHECK-NEXT: %b, %c = "vllm_ir.rms_norm_per_token_group_fp8_quant"(%x, %w) <{epsilon = 1.000000e-06 : f64, group_size = 8 : i64, use_ue8m0 = true, quant_epsilon = 1.000000e-09 : f64}>
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @group(%x: tensor<3x16xbf16>, %w: tensor<16xbf16>) -> (tensor<3x16xf8E4M3FN>, tensor<3x2xf32>) {
  %a = vllm_ir.rms_norm %x : tensor<3x16xbf16> weight %w : tensor<16xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<3x16xbf16>
  %b, %c = "vllm_ir.per_token_group_fp8_quant"(%a) <{group_size = 8 : i64, use_ue8m0 = true, epsilon = 1.000000e-09 : f64}> : (tensor<3x16xbf16>) -> (tensor<3x16xf8E4M3FN>, tensor<3x2xf32>)
  vllm_ir.return (%b, %c) : tensor<3x16xf8E4M3FN>, tensor<3x2xf32>
}

// -----

// CHECK: vllm_ir.fused = {rms_norm_per_token_group_quant = ["%c"]}
// CHECK-LABEL: @group_residual(
// CHECK-NEXT: %c, %d, %b = "vllm_ir.fused_add_rms_norm_per_token_group_fp8_quant"(%x, %r, %w) <{epsilon = 1.000000e-06 : f64, group_size = 4 : i64, use_ue8m0 = false, quant_epsilon = 1.000000e-10 : f64}>
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @group_residual(%x: tensor<3x16xbf16>, %r: tensor<3x16xbf16>, %w: tensor<16xbf16>) -> (tensor<3x16xf8E4M3FN>, tensor<3x4xf32>, tensor<3x16xbf16>) {
  %a, %b = vllm_ir.fused_add_rms_norm %x, %r : tensor<3x16xbf16>, tensor<3x16xbf16> weight %w : tensor<16xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<3x16xbf16>, tensor<3x16xbf16>
  %c, %d = "vllm_ir.per_token_group_fp8_quant"(%a) <{group_size = 4 : i64, use_ue8m0 = false, epsilon = 1.000000e-10 : f64}> : (tensor<3x16xbf16>) -> (tensor<3x16xf8E4M3FN>, tensor<3x4xf32>)
  vllm_ir.return (%c, %d, %b) : tensor<3x16xf8E4M3FN>, tensor<3x4xf32>, tensor<3x16xbf16>
}

// -----

// CHECK: vllm_ir.fused = {rms_norm_per_token_group_quant = ["%b"]}
// CHECK-LABEL: @group_int8(
// CHECK-NEXT: %b, %c = "vllm_ir.rms_norm_per_token_group_int8_quant"(%x) <{epsilon = 1.000000e-06 : f64, group_size = 8 : i64, quant_epsilon = 1.000000e-10 : f64}>
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @group_int8(%x: tensor<3x16xbf16>) -> (tensor<3x16xi8>, tensor<3x2xf32>) {
  %a = vllm_ir.rms_norm %x : tensor<3x16xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<3x16xbf16>
  %b, %c = "vllm_ir.per_token_group_int8_quant"(%a) <{group_size = 8 : i64, epsilon = 1.000000e-10 : f64}> : (tensor<3x16xbf16>) -> (tensor<3x16xi8>, tensor<3x2xf32>)
  vllm_ir.return (%b, %c) : tensor<3x16xi8>, tensor<3x2xf32>
}

// -----

// The norm itself is read as well.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}rms_norm_static_quant = [{{.*}}"%a: vllm_ir.rms_norm: %a is also used by %c"
// CHECK-LABEL: @norm_used(
// CHECK-NOT: norm_{{.*}}_quant
// CHECK: vllm_ir.return
vllm_ir.func functional @norm_used(%x: tensor<3x16xbf16>, %w: tensor<16xbf16>, %s: tensor<1xf32>) -> (tensor<3x16xf8E4M3FN>, tensor<3x16xbf16>) {
  %a = vllm_ir.rms_norm %x : tensor<3x16xbf16> weight %w : tensor<16xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<3x16xbf16>
  %b = "vllm_ir.static_scaled_fp8_quant"(%a, %s) : (tensor<3x16xbf16>, tensor<1xf32>) -> tensor<3x16xf8E4M3FN>
  %c = torch.call @aten.mul.Tensor(%a, 2) : (tensor<3x16xbf16>) -> tensor<3x16xbf16>
  vllm_ir.return (%b, %c) : tensor<3x16xf8E4M3FN>, tensor<3x16xbf16>
}

// -----

// The same, with a residual.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}rms_norm_per_token_group_quant = [{{.*}}"%a: vllm_ir.fused_add_rms_norm: %a is also used by %e"
// CHECK-LABEL: @norm_used_residual(
// CHECK-NOT: norm_{{.*}}_quant
// CHECK: vllm_ir.return
vllm_ir.func functional @norm_used_residual(%x: tensor<3x16xbf16>, %r: tensor<3x16xbf16>, %w: tensor<16xbf16>) -> (tensor<3x16xf8E4M3FN>, tensor<3x2xf32>, tensor<3x16xbf16>, tensor<3x16xbf16>) {
  %a, %b = vllm_ir.fused_add_rms_norm %x, %r : tensor<3x16xbf16>, tensor<3x16xbf16> weight %w : tensor<16xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<3x16xbf16>, tensor<3x16xbf16>
  %c, %d = "vllm_ir.per_token_group_fp8_quant"(%a) <{group_size = 8 : i64, use_ue8m0 = false, epsilon = 1.000000e-10 : f64}> : (tensor<3x16xbf16>) -> (tensor<3x16xf8E4M3FN>, tensor<3x2xf32>)
  %e = torch.call @aten.mul.Tensor(%a, 2) : (tensor<3x16xbf16>) -> tensor<3x16xbf16>
  vllm_ir.return (%c, %d, %e, %b) : tensor<3x16xf8E4M3FN>, tensor<3x2xf32>, tensor<3x16xbf16>, tensor<3x16xbf16>
}

// -----

// It is the sum that is quantised.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}rms_norm_static_quant = [{{.*}}"%c: vllm_ir.static_scaled_fp8_quant: %b is another result than expected"
// CHECK-LABEL: @sum_quantised(
// CHECK-NOT: norm_{{.*}}_quant
// CHECK: vllm_ir.return
vllm_ir.func functional @sum_quantised(%x: tensor<3x16xbf16>, %r: tensor<3x16xbf16>, %w: tensor<16xbf16>, %s: tensor<1xf32>) -> (tensor<3x16xbf16>, tensor<3x16xf8E4M3FN>) {
  %a, %b = vllm_ir.fused_add_rms_norm %x, %r : tensor<3x16xbf16>, tensor<3x16xbf16> weight %w : tensor<16xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<3x16xbf16>, tensor<3x16xbf16>
  %c = "vllm_ir.static_scaled_fp8_quant"(%b, %s) : (tensor<3x16xbf16>, tensor<1xf32>) -> tensor<3x16xf8E4M3FN>
  vllm_ir.return (%a, %c) : tensor<3x16xbf16>, tensor<3x16xf8E4M3FN>
}

// -----

// The norm is rounded to another dtype first.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}rms_norm_static_quant = [{{.*}}"%b: @aten._to_copy.default: vllm_ir.rms_norm is expected here"
// CHECK-LABEL: @rounded_between(
// CHECK-NOT: norm_{{.*}}_quant
// CHECK: vllm_ir.return
vllm_ir.func functional @rounded_between(%x: tensor<3x16xf32>, %w: tensor<16xf32>, %s: tensor<1xf32>) -> tensor<3x16xf8E4M3FN> {
  %a = vllm_ir.rms_norm %x : tensor<3x16xf32> weight %w : tensor<16xf32> {epsilon = 1.000000e-06 : f64} -> tensor<3x16xf32>
  %b = torch.call @aten._to_copy.default(%a, dtype = f16, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (tensor<3x16xf32>) -> tensor<3x16xf16>
  %c = "vllm_ir.static_scaled_fp8_quant"(%b, %s) : (tensor<3x16xf16>, tensor<1xf32>) -> tensor<3x16xf8E4M3FN>
  vllm_ir.return %c : tensor<3x16xf8E4M3FN>
}

// -----

// Scales of other rows.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}rms_norm_dynamic_per_token_quant = [{{.*}}"%b: @aten.view.default: vllm_ir.rms_norm is expected here"
// CHECK-LABEL: @other_rows(
// CHECK-NOT: norm_{{.*}}_quant
// CHECK: vllm_ir.return
vllm_ir.func functional @other_rows(%x: tensor<3x16xbf16>, %w: tensor<16xbf16>) -> (tensor<6x8xf8E4M3FN>, tensor<6x1xf32>) {
  %a = vllm_ir.rms_norm %x : tensor<3x16xbf16> weight %w : tensor<16xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<3x16xbf16>
  %b = torch.call @aten.view.default(%a, [6, 8]) : (tensor<3x16xbf16>) -> tensor<6x8xbf16>
  %c, %d = "vllm_ir.dynamic_per_token_scaled_fp8_quant"(%b) : (tensor<6x8xbf16>) -> (tensor<6x8xf8E4M3FN>, tensor<6x1xf32>)
  vllm_ir.return (%c, %d) : tensor<6x8xf8E4M3FN>, tensor<6x1xf32>
}
