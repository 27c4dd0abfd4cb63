// RUN: vllm-ir-opt %s -p 'fuse{only=gated_rms_norm,gated_rms_norm_static_quant,gated_rms_norm_per_token_group_quant explain=true}' --split-input-file | filecheck %s
// RUN: vllm-ir-opt %s -p 'fuse{only=gated_rms_norm numerics=exact explain=true}' --split-input-file | filecheck %s --check-prefix EXACT

// The gate goes through float32, as in Qwen3-Next, and heads are put one behind the other before they are quantised.
// CHECK: vllm_ir.fused = {gated_rms_norm = ["%{{[a-z_0-9]+}}"], gated_rms_norm_per_token_group_quant = ["%{{[a-z_0-9]+}}"]}
// CHECK-LABEL: @groups_of_heads(
// CHECK-NEXT: %[[Q:.*]], %[[S:.*]] = "vllm_ir.gated_rms_norm_per_token_group_fp8_quant"(%x, %z, %w) <{epsilon = 1.000000e-05 : f64, group_size = 4 : i64, use_ue8m0 = true, quant_epsilon = 1.000000e-08 : f64
// CHECK-NEXT: %[[ROWS:.*]] = torch.call @aten.view.default(%[[Q]], [-1, 24])
// CHECK-NEXT: %[[SCALES:.*]] = torch.call @aten.view.default(%[[S]], [-1, 6])
// CHECK-NEXT: vllm_ir.return (%[[ROWS]], %[[SCALES]])
// EXACT: vllm_ir.fused = {gated_rms_norm = ["%{{[a-z_0-9]+}}"]}
vllm_ir.func functional @groups_of_heads(%x: tensor<6x8xbf16>, %z: tensor<6x8xbf16>, %w: tensor<8xbf16>) -> (tensor<2x24xf8E4M3FN>, tensor<2x6xf32>) {
  %a = vllm_ir.rms_norm %x : tensor<6x8xbf16> weight %w : tensor<8xbf16> {epsilon = 1.0e-05 : f64} -> tensor<6x8xbf16>
  %b = torch.call @aten._to_copy.default(%z, dtype = f32, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (tensor<6x8xbf16>) -> tensor<6x8xf32>
  %c = torch.call @aten.silu.default(%b) : (tensor<6x8xf32>) -> tensor<6x8xf32>
  %d = torch.call @aten.mul.Tensor(%c, %a) : (tensor<6x8xf32>, tensor<6x8xbf16>) -> tensor<6x8xf32>
  %e = torch.call @aten._to_copy.default(%d, dtype = bf16, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (tensor<6x8xf32>) -> tensor<6x8xbf16>
  %f = torch.call @aten.view.default(%e, [2, 24]) : (tensor<6x8xbf16>) -> tensor<2x24xbf16>
  %g, %h = "vllm_ir.per_token_group_fp8_quant"(%f) <{group_size = 4 : i64, use_ue8m0 = true, epsilon = 1.0e-08 : f64}> : (tensor<2x24xbf16>) -> (tensor<2x24xf8E4M3FN>, tensor<2x6xf32>)
  vllm_ir.return (%g, %h) : tensor<2x24xf8E4M3FN>, tensor<2x6xf32>
}

// -----

// Groups that reach over heads are none of the op's.
// CHECK: vllm_ir.fused = {gated_rms_norm = ["%{{[a-z_0-9]+}}"]}
// CHECK: gated_rms_norm_per_token_group_quant = ["{{.*}}: after does not take operands of these types: {{.*}}group_size 12, got shape [6, 8]"
// CHECK-LABEL: @groups_over_heads(
// CHECK-NEXT: "vllm_ir.gated_rms_norm"(%x, %z)
// CHECK: "vllm_ir.per_token_group_fp8_quant"
// EXACT: vllm_ir.fused
vllm_ir.func functional @groups_over_heads(%x: tensor<6x8xf32>, %z: tensor<6x8xf32>) -> (tensor<2x24xf8E4M3FN>, tensor<2x2xf32>) {
  %a = vllm_ir.rms_norm %x : tensor<6x8xf32> {epsilon = 1.0e-05 : f64} -> tensor<6x8xf32>
  %c = torch.call @aten.silu.default(%z) : (tensor<6x8xf32>) -> tensor<6x8xf32>
  %d = torch.call @aten.mul.Tensor(%a, %c) : (tensor<6x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
  %f = torch.call @aten.view.default(%d, [2, 24]) : (tensor<6x8xf32>) -> tensor<2x24xf32>
  %g, %h = "vllm_ir.per_token_group_fp8_quant"(%f) <{group_size = 12 : i64, use_ue8m0 = false, epsilon = 1.0e-10 : f64}> : (tensor<2x24xf32>) -> (tensor<2x24xf8E4M3FN>, tensor<2x2xf32>)
  vllm_ir.return (%g, %h) : tensor<2x24xf8E4M3FN>, tensor<2x2xf32>
}

// -----

// The activation is rounded to bfloat16 in the program and not in the op: that is for those who allow it.
// CHECK: vllm_ir.fused = {gated_rms_norm = ["%{{[a-z_0-9]+}}"], gated_rms_norm_static_quant = ["%{{[a-z_0-9]+}}"]}
// CHECK-LABEL: @rounded(
// CHECK-NEXT: %e = "vllm_ir.gated_rms_norm_static_fp8_quant"(%x, %z, %w, %scale)
// CHECK-NEXT: vllm_ir.return %e
// EXACT: vllm_ir.unfused = {gated_rms_norm = ["{{.*}}: its rounding is changed, allowed is exact"
// EXACT-LABEL: @rounded(
// EXACT-NOT: gated_rms_norm
// EXACT: vllm_ir.return
vllm_ir.func functional @rounded(%x: tensor<6x8xbf16>, %z: tensor<6x8xbf16>, %w: tensor<8xbf16>, %scale: tensor<1xf32>) -> tensor<6x8xf8E4M3FN> {
  %a = vllm_ir.rms_norm %x : tensor<6x8xbf16> weight %w : tensor<8xbf16> {epsilon = 1.0e-05 : f64} -> tensor<6x8xbf16>
  %c = torch.call @aten.silu.default(%z) : (tensor<6x8xbf16>) -> tensor<6x8xbf16>
  %d = torch.call @aten.mul.Tensor(%a, %c) : (tensor<6x8xbf16>, tensor<6x8xbf16>) -> tensor<6x8xbf16>
  %e = "vllm_ir.static_scaled_fp8_quant"(%d, %scale) : (tensor<6x8xbf16>, tensor<1xf32>) -> tensor<6x8xf8E4M3FN>
  vllm_ir.return %e : tensor<6x8xf8E4M3FN>
}

// -----

// The product with the activation is an op already, as `recognize_silu_mul` makes it.
// CHECK: vllm_ir.fused = {gated_rms_norm = ["%{{[a-z_0-9]+}}"]}
// CHECK-LABEL: @activation_is_an_op(
// CHECK-NEXT: %d = "vllm_ir.gated_rms_norm"(%x, %z)
// CHECK-NEXT: vllm_ir.return %d
// EXACT: vllm_ir.fused = {gated_rms_norm
vllm_ir.func functional @activation_is_an_op(%x: tensor<6x8xf32>, %z: tensor<6x8xf32>) -> tensor<6x8xf32> {
  %a = vllm_ir.rms_norm %x : tensor<6x8xf32> {epsilon = 1.0e-05 : f64} -> tensor<6x8xf32>
  %d = "vllm_ir.silu_mul"(%z, %a) : (tensor<6x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
  vllm_ir.return %d : tensor<6x8xf32>
}

// -----

// A weight in float32 makes the product float32; the op would give bfloat16.
// CHECK: gated_rms_norm = ["{{.*}}: result 0 is tensor<6x8xf32> before, tensor<6x8xbf16> after"
// CHECK-LABEL: @wide_weight(
// CHECK-NOT: vllm_ir.gated_rms_norm
// CHECK: vllm_ir.return
// EXACT-LABEL: @wide_weight(
vllm_ir.func functional @wide_weight(%x: tensor<6x8xbf16>, %z: tensor<6x8xf32>, %w: tensor<8xf32>) -> tensor<6x8xf32> {
  %a = vllm_ir.rms_norm %x : tensor<6x8xbf16> weight %w : tensor<8xf32> {epsilon = 1.0e-05 : f64} -> tensor<6x8xf32>
  %c = torch.call @aten.silu.default(%z) : (tensor<6x8xf32>) -> tensor<6x8xf32>
  %d = torch.call @aten.mul.Tensor(%a, %c) : (tensor<6x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
  vllm_ir.return %d : tensor<6x8xf32>
}

// -----

// The gate comes before the norm.
// CHECK-NOT: vllm_ir.fused =
// CHECK-LABEL: @gate_first(
// CHECK-NOT: vllm_ir.gated_rms_norm
// CHECK: vllm_ir.return
// EXACT-LABEL: @gate_first(
vllm_ir.func functional @gate_first(%x: tensor<6x8xf32>, %z: tensor<6x8xf32>) -> tensor<6x8xf32> {
  %c = torch.call @aten.silu.default(%z) : (tensor<6x8xf32>) -> tensor<6x8xf32>
  %d = torch.call @aten.mul.Tensor(%x, %c) : (tensor<6x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
  %a = vllm_ir.rms_norm %d : tensor<6x8xf32> {epsilon = 1.0e-05 : f64} -> tensor<6x8xf32>
  vllm_ir.return %a : tensor<6x8xf32>
}
