// RUN: vllm-ir-opt %s -p 'fuse{only=activation_static_quant,activation_dynamic_per_token_quant,activation_per_token_group_quant explain=true}' --split-input-file | filecheck %s

// CHECK: vllm_ir.fused = {activation_static_quant = ["%b"]}
// CHECK-LABEL: @static(
// CHECK-NEXT: %b = "vllm_ir.silu_and_mul_static_fp8_quant"(%x, %s)
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @static(%x: tensor<3x32xbf16>, %s: tensor<1xf32>) -> tensor<3x16xf8E4M3FN> {
  %a = vllm_ir.silu_and_mul %x : tensor<3x32xbf16> -> tensor<3x16xbf16>
  %b = "vllm_ir.static_scaled_fp8_quant"(%a, %s) : (tensor<3x16xbf16>, tensor<1xf32>) -> tensor<3x16xf8E4M3FN>
  vllm_ir.return %b : tensor<3x16xf8E4M3FN>
}

// -----

// How the activation is computed goes along.
// CHECK: vllm_ir.fused = {activation_static_quant = ["%b"]}
// CHECK-LABEL: @static_gelu(
// CHECK-NEXT: %b = "vllm_ir.gelu_and_mul_static_fp8_quant"(%x, %s) <{approximate = "tanh"}>
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @static_gelu(%x: tensor<3x32xbf16>, %s: tensor<1xf32>) -> tensor<3x16xf8E4M3FN> {
  %a = vllm_ir.gelu_and_mul %x {approximate = "tanh"} : tensor<3x32xbf16> -> tensor<3x16xbf16>
  %b = "vllm_ir.static_scaled_fp8_quant"(%a, %s) : (tensor<3x16xbf16>, tensor<1xf32>) -> tensor<3x16xf8E4M3FN>
  vllm_ir.return %b : tensor<3x16xf8E4M3FN>
}

// -----

// CHECK: vllm_ir.fused = {activation_dynamic_per_token_quant = ["%b"]}
// CHECK-LABEL: @dynamic(
// CHECK-NEXT: %b, %c = "vllm_ir.silu_and_mul_dynamic_per_token_fp8_quant"(%x, %u)
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @dynamic(%x: tensor<3x32xf32>, %u: tensor<1xf32>) -> (tensor<3x16xf8E4M3FN>, tensor<3x1xf32>) {
  %a = vllm_ir.silu_and_mul %x : tensor<3x32xf32> -> tensor<3x16xf32>
  %b, %c = "vllm_ir.dynamic_per_token_scaled_fp8_quant"(%a, %u) : (tensor<3x16xf32>, tensor<1xf32>) -> (tensor<3x16xf8E4M3FN>, tensor<3x1xf32>)
  vllm_ir.return (%b, %c) : tensor<3x16xf8E4M3FN>, tensor<3x1xf32>
}

// -----

// Powers of two, the size of a group and the least scale go along.
// CHECK: vllm_ir.fused = {activation_per_token_group_quant = ["%b"]}
// CHECK-LABEL: @group(
// CHECK-NEXT: %b, %c = "vllm_ir.silu_and_mul_per_token_group_fp8_quant"(%x) <{group_size = 4 : i64, use_ue8m0 = true, epsilon = 1.000000e-09 : f64}>
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @group(%x: tensor<3x32xf16>) -> (tensor<3x16xf8E4M3FN>, tensor<3x4xf32>) {
  %a = vllm_ir.silu_and_mul %x : tensor<3x32xf16> -> tensor<3x16xf16>
  %b, %c = "vllm_ir.per_token_group_fp8_quant"(%a) <{group_size = 4 : i64, use_ue8m0 = true, epsilon = 1.000000e-09 : f64}> : (tensor<3x16xf16>) -> (tensor<3x16xf8E4M3FN>, tensor<3x4xf32>)
  vllm_ir.return (%b, %c) : tensor<3x16xf8E4M3FN>, tensor<3x4xf32>
}

// -----

// As ROCm's kernels have it: groups of 128, in more than two dimensions.
// CHECK: vllm_ir.fused = {activation_per_token_group_quant = ["%b"]}
// CHECK-LABEL: @group_128(
// CHECK-NEXT: %b, %c = "vllm_ir.silu_and_mul_per_token_group_fp8_quant"(%x) <{group_size = 128 : i64, use_ue8m0 = false, epsilon = 1.000000e-10 : f64}>
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @group_128(%x: tensor<2x3x256xbf16>) -> (tensor<2x3x128xf8E4M3FN>, tensor<2x3x1xf32>) {
  %a = vllm_ir.silu_and_mul %x : tensor<2x3x256xbf16> -> tensor<2x3x128xbf16>
  %b, %c = "vllm_ir.per_token_group_fp8_quant"(%a) <{group_size = 128 : i64, use_ue8m0 = false, epsilon = 1.000000e-10 : f64}> : (tensor<2x3x128xbf16>) -> (tensor<2x3x128xf8E4M3FN>, tensor<2x3x1xf32>)
  vllm_ir.return (%b, %c) : tensor<2x3x128xf8E4M3FN>, tensor<2x3x1xf32>
}

// -----

// The activation is read as well.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}activation_static_quant = [{{.*}}"%a: vllm_ir.silu_and_mul: %a is also used by %c"
// CHECK-LABEL: @used(
// CHECK-NOT: and_mul_{{.*}}_quant
// CHECK: vllm_ir.return
vllm_ir.func functional @used(%x: tensor<3x32xbf16>, %s: tensor<1xf32>) -> (tensor<3x16xf8E4M3FN>, tensor<3x16xbf16>) {
  %a = vllm_ir.silu_and_mul %x : tensor<3x32xbf16> -> tensor<3x16xbf16>
  %b = "vllm_ir.static_scaled_fp8_quant"(%a, %s) : (tensor<3x16xbf16>, tensor<1xf32>) -> tensor<3x16xf8E4M3FN>
  %c = torch.call @aten.mul.Tensor(%a, 2) : (tensor<3x16xbf16>) -> tensor<3x16xbf16>
  vllm_ir.return (%b, %c) : tensor<3x16xf8E4M3FN>, tensor<3x16xbf16>
}

// -----

// There is no fused op for int8.
// CHECK-NOT: vllm_ir.fused =
// CHECK-LABEL: @int8(
// CHECK-NOT: and_mul_{{.*}}_quant
// CHECK: vllm_ir.return
vllm_ir.func functional @int8(%x: tensor<3x32xbf16>, %s: tensor<1xf32>) -> tensor<3x16xi8> {
  %a = vllm_ir.silu_and_mul %x : tensor<3x32xbf16> -> tensor<3x16xbf16>
  %b = "vllm_ir.static_scaled_int8_quant"(%a, %s) : (tensor<3x16xbf16>, tensor<1xf32>) -> tensor<3x16xi8>
  vllm_ir.return %b : tensor<3x16xi8>
}

// -----

// Scales of other rows.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}activation_dynamic_per_token_quant = [{{.*}}"%b: @aten.view.default: vllm_ir.silu_and_mul is expected here"
// CHECK-LABEL: @rows_between(
// CHECK-NOT: and_mul_{{.*}}_quant
// CHECK: vllm_ir.return
vllm_ir.func functional @rows_between(%x: tensor<3x32xbf16>) -> (tensor<6x8xf8E4M3FN>, tensor<6x1xf32>) {
  %a = vllm_ir.silu_and_mul %x : tensor<3x32xbf16> -> tensor<3x16xbf16>
  %b = torch.call @aten.view.default(%a, [6, 8]) : (tensor<3x16xbf16>) -> tensor<6x8xbf16>
  %c, %d = "vllm_ir.dynamic_per_token_scaled_fp8_quant"(%b) : (tensor<6x8xbf16>) -> (tensor<6x8xf8E4M3FN>, tensor<6x1xf32>)
  vllm_ir.return (%c, %d) : tensor<6x8xf8E4M3FN>, tensor<6x1xf32>
}

// -----

// Gate and factor are no halves of one tensor.
// CHECK-NOT: vllm_ir.fused =
// CHECK-LABEL: @two_tensors(
// CHECK-NOT: and_mul_{{.*}}_quant
// CHECK: vllm_ir.return
vllm_ir.func functional @two_tensors(%x: tensor<3x16xbf16>, %y: tensor<3x16xbf16>, %s: tensor<1xf32>) -> tensor<3x16xf8E4M3FN> {
  %a = "vllm_ir.silu_mul"(%x, %y) : (tensor<3x16xbf16>, tensor<3x16xbf16>) -> tensor<3x16xbf16>
  %b = "vllm_ir.static_scaled_fp8_quant"(%a, %s) : (tensor<3x16xbf16>, tensor<1xf32>) -> tensor<3x16xf8E4M3FN>
  vllm_ir.return %b : tensor<3x16xf8E4M3FN>
}
