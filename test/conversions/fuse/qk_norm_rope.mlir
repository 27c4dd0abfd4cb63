// RUN: vllm-ir-opt %s -p 'fuse{only=qk_norm_rope,qk_norm_rope_cache explain=true}' --split-input-file | filecheck %s

// CHECK: vllm_ir.fused = {qk_norm_rope = ["%
// CHECK-LABEL: @neox(
// CHECK-NEXT: "vllm_ir.qk_norm_rope"(%qkv, %positions, %qw, %kw, %table) {{.*}}epsilon = 1.000000e-08 : f64, num_heads = 4 : i64, num_kv_heads = 2 : i64, head_size = 16 : i64, is_neox = true
// CHECK-NOT: vllm_ir.rotary_embedding
// CHECK: vllm_ir.return
vllm_ir.func functional @neox(%qkv: tensor<5x128xbf16>, %positions: tensor<5xi64>, %qw: tensor<16xbf16>, %kw: tensor<16xbf16>, %table: tensor<32x16xbf16>) -> (tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<5x32xbf16>) {
  %a, %b, %c = torch.call @aten.split_with_sizes.default(%qkv, [64, 32, 32], -1) : (tensor<5x128xbf16>) -> (tensor<5x64xbf16, #vllm_ir.layout<strides = [128, 1]>>, tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>, tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>)
  %d = torch.call @aten.view.default(%a, [-1, 4, 16]) : (tensor<5x64xbf16, #vllm_ir.layout<strides = [128, 1]>>) -> tensor<5x4x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>>
  %e = vllm_ir.rms_norm %d : tensor<5x4x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>> weight %qw : tensor<16xbf16> {epsilon = 1.000000e-08 : f64} -> tensor<5x4x16xbf16>
  %f = torch.call @aten.view.default(%e, [5, 64]) : (tensor<5x4x16xbf16>) -> tensor<5x64xbf16>
  %g = torch.call @aten.view.default(%b, [-1, 2, 16]) : (tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>) -> tensor<5x2x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>>
  %h = vllm_ir.rms_norm %g : tensor<5x2x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>> weight %kw : tensor<16xbf16> {epsilon = 1.000000e-08 : f64} -> tensor<5x2x16xbf16>
  %i = torch.call @aten.view.default(%h, [5, 32]) : (tensor<5x2x16xbf16>) -> tensor<5x32xbf16>
  %j, %l = vllm_ir.rotary_embedding %positions, %f, %i, %table {head_size = 16 : i64, is_neox = true} : tensor<5xi64>, tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<32x16xbf16> -> tensor<5x64xbf16>, tensor<5x32xbf16>
  %m = torch.call @aten.mul.Tensor(%c, 1) : (tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>) -> tensor<5x32xbf16>
  vllm_ir.return (%j, %l, %m) : tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<5x32xbf16>
}

// -----

// Any size of heads, neighbours, no weights, float32.
// CHECK: vllm_ir.fused = {qk_norm_rope = ["%
// CHECK-LABEL: @head_of_24(
// CHECK-NEXT: "vllm_ir.qk_norm_rope"(%qkv, %positions, %table) {{.*}}epsilon = 1.000000e-06 : f64, num_heads = 4 : i64, num_kv_heads = 2 : i64, head_size = 24 : i64, is_neox = false
// CHECK-NOT: vllm_ir.rotary_embedding
// CHECK: vllm_ir.return
vllm_ir.func functional @head_of_24(%qkv: tensor<5x192xf32>, %positions: tensor<5xi64>, %table: tensor<32x24xf32>) -> (tensor<5x96xf32>, tensor<5x48xf32>, tensor<5x48xf32>) {
  %a, %b, %c = torch.call @aten.split_with_sizes.default(%qkv, [96, 48, 48], -1) : (tensor<5x192xf32>) -> (tensor<5x96xf32, #vllm_ir.layout<strides = [192, 1]>>, tensor<5x48xf32, #vllm_ir.layout<strides = [192, 1]>>, tensor<5x48xf32, #vllm_ir.layout<strides = [192, 1]>>)
  %d = torch.call @aten.view.default(%a, [-1, 4, 24]) : (tensor<5x96xf32, #vllm_ir.layout<strides = [192, 1]>>) -> tensor<5x4x24xf32, #vllm_ir.layout<strides = [192, 24, 1]>>
  %e = vllm_ir.rms_norm %d : tensor<5x4x24xf32, #vllm_ir.layout<strides = [192, 24, 1]>> {epsilon = 1.000000e-06 : f64} -> tensor<5x4x24xf32>
  %f = torch.call @aten.view.default(%e, [5, 96]) : (tensor<5x4x24xf32>) -> tensor<5x96xf32>
  %g = torch.call @aten.view.default(%b, [-1, 2, 24]) : (tensor<5x48xf32, #vllm_ir.layout<strides = [192, 1]>>) -> tensor<5x2x24xf32, #vllm_ir.layout<strides = [192, 24, 1]>>
  %h = vllm_ir.rms_norm %g : tensor<5x2x24xf32, #vllm_ir.layout<strides = [192, 24, 1]>> {epsilon = 1.000000e-06 : f64} -> tensor<5x2x24xf32>
  %i = torch.call @aten.view.default(%h, [5, 48]) : (tensor<5x2x24xf32>) -> tensor<5x48xf32>
  %j, %l = vllm_ir.rotary_embedding %positions, %f, %i, %table {head_size = 24 : i64, is_neox = false} : tensor<5xi64>, tensor<5x96xf32>, tensor<5x48xf32>, tensor<32x24xf32> -> tensor<5x96xf32>, tensor<5x48xf32>
  %m = torch.call @aten.mul.Tensor(%c, 1) : (tensor<5x48xf32, #vllm_ir.layout<strides = [192, 1]>>) -> tensor<5x48xf32>
  vllm_ir.return (%j, %l, %m) : tensor<5x96xf32>, tensor<5x48xf32>, tensor<5x48xf32>
}

// -----

// The normalised keys are read before the rotation.
// CHECK-NOT: vllm_ir.fused =
// CHECK-LABEL: @normed_used(
// CHECK-NOT: qk_norm_rope
// CHECK: vllm_ir.return
vllm_ir.func functional @normed_used(%qkv: tensor<5x128xbf16>, %positions: tensor<5xi64>, %qw: tensor<16xbf16>, %kw: tensor<16xbf16>, %table: tensor<32x16xbf16>) -> (tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<5x32xbf16>, tensor<5x32xbf16>) {
  %a, %b, %c = torch.call @aten.split_with_sizes.default(%qkv, [64, 32, 32], -1) : (tensor<5x128xbf16>) -> (tensor<5x64xbf16, #vllm_ir.layout<strides = [128, 1]>>, tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>, tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>)
  %d = torch.call @aten.view.default(%a, [-1, 4, 16]) : (tensor<5x64xbf16, #vllm_ir.layout<strides = [128, 1]>>) -> tensor<5x4x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>>
  %e = vllm_ir.rms_norm %d : tensor<5x4x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>> weight %qw : tensor<16xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<5x4x16xbf16>
  %f = torch.call @aten.view.default(%e, [5, 64]) : (tensor<5x4x16xbf16>) -> tensor<5x64xbf16>
  %g = torch.call @aten.view.default(%b, [-1, 2, 16]) : (tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>) -> tensor<5x2x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>>
  %h = vllm_ir.rms_norm %g : tensor<5x2x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>> weight %kw : tensor<16xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<5x2x16xbf16>
  %i = torch.call @aten.view.default(%h, [5, 32]) : (tensor<5x2x16xbf16>) -> tensor<5x32xbf16>
  %j, %l = vllm_ir.rotary_embedding %positions, %f, %i, %table {head_size = 16 : i64, is_neox = true} : tensor<5xi64>, tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<32x16xbf16> -> tensor<5x64xbf16>, tensor<5x32xbf16>
  %m = torch.call @aten.mul.Tensor(%c, 1) : (tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>) -> tensor<5x32xbf16>
  %n = torch.call @aten.mul.Tensor(%i, 1) : (tensor<5x32xbf16>) -> tensor<5x32xbf16>
  vllm_ir.return (%j, %l, %m, %n) : tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<5x32xbf16>, tensor<5x32xbf16>
}

// -----

// A weight for queries alone.
// CHECK-NOT: vllm_ir.fused =
// CHECK-LABEL: @one_weight(
// CHECK-NOT: qk_norm_rope
// CHECK: vllm_ir.return
vllm_ir.func functional @one_weight(%qkv: tensor<5x128xbf16>, %positions: tensor<5xi64>, %qw: tensor<16xbf16>, %table: tensor<32x16xbf16>) -> (tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<5x32xbf16>) {
  %a, %b, %c = torch.call @aten.split_with_sizes.default(%qkv, [64, 32, 32], -1) : (tensor<5x128xbf16>) -> (tensor<5x64xbf16, #vllm_ir.layout<strides = [128, 1]>>, tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>, tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>)
  %d = torch.call @aten.view.default(%a, [-1, 4, 16]) : (tensor<5x64xbf16, #vllm_ir.layout<strides = [128, 1]>>) -> tensor<5x4x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>>
  %e = vllm_ir.rms_norm %d : tensor<5x4x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>> weight %qw : tensor<16xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<5x4x16xbf16>
  %f = torch.call @aten.view.default(%e, [5, 64]) : (tensor<5x4x16xbf16>) -> tensor<5x64xbf16>
  %g = torch.call @aten.view.default(%b, [-1, 2, 16]) : (tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>) -> tensor<5x2x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>>
  %h = vllm_ir.rms_norm %g : tensor<5x2x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>> {epsilon = 1.000000e-06 : f64} -> tensor<5x2x16xbf16>
  %i = torch.call @aten.view.default(%h, [5, 32]) : (tensor<5x2x16xbf16>) -> tensor<5x32xbf16>
  %j, %l = vllm_ir.rotary_embedding %positions, %f, %i, %table {head_size = 16 : i64, is_neox = true} : tensor<5xi64>, tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<32x16xbf16> -> tensor<5x64xbf16>, tensor<5x32xbf16>
  %m = torch.call @aten.mul.Tensor(%c, 1) : (tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>) -> tensor<5x32xbf16>
  vllm_ir.return (%j, %l, %m) : tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<5x32xbf16>
}

// -----

// CHECK-NOT: vllm_ir.fused =
// CHECK-LABEL: @two_epsilons(
// CHECK-NOT: qk_norm_rope
// CHECK: vllm_ir.return
vllm_ir.func functional @two_epsilons(%qkv: tensor<5x128xbf16>, %positions: tensor<5xi64>, %qw: tensor<16xbf16>, %kw: tensor<16xbf16>, %table: tensor<32x16xbf16>) -> (tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<5x32xbf16>) {
  %a, %b, %c = torch.call @aten.split_with_sizes.default(%qkv, [64, 32, 32], -1) : (tensor<5x128xbf16>) -> (tensor<5x64xbf16, #vllm_ir.layout<strides = [128, 1]>>, tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>, tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>)
  %d = torch.call @aten.view.default(%a, [-1, 4, 16]) : (tensor<5x64xbf16, #vllm_ir.layout<strides = [128, 1]>>) -> tensor<5x4x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>>
  %e = vllm_ir.rms_norm %d : tensor<5x4x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>> weight %qw : tensor<16xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<5x4x16xbf16>
  %f = torch.call @aten.view.default(%e, [5, 64]) : (tensor<5x4x16xbf16>) -> tensor<5x64xbf16>
  %g = torch.call @aten.view.default(%b, [-1, 2, 16]) : (tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>) -> tensor<5x2x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>>
  %h = vllm_ir.rms_norm %g : tensor<5x2x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>> weight %kw : tensor<16xbf16> {epsilon = 1.000000e-05 : f64} -> tensor<5x2x16xbf16>
  %i = torch.call @aten.view.default(%h, [5, 32]) : (tensor<5x2x16xbf16>) -> tensor<5x32xbf16>
  %j, %l = vllm_ir.rotary_embedding %positions, %f, %i, %table {head_size = 16 : i64, is_neox = true} : tensor<5xi64>, tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<32x16xbf16> -> tensor<5x64xbf16>, tensor<5x32xbf16>
  %m = torch.call @aten.mul.Tensor(%c, 1) : (tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>) -> tensor<5x32xbf16>
  vllm_ir.return (%j, %l, %m) : tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<5x32xbf16>
}

// -----

// The norm is one of all heads together.
// CHECK-NOT: vllm_ir.fused =
// CHECK-LABEL: @whole_norm(
// CHECK-NOT: qk_norm_rope
// CHECK: vllm_ir.return
vllm_ir.func functional @whole_norm(%qkv: tensor<5x128xbf16>, %positions: tensor<5xi64>, %qw: tensor<64xbf16>, %kw: tensor<32xbf16>, %table: tensor<32x16xbf16>) -> (tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<5x32xbf16>) {
  %a, %b, %c = torch.call @aten.split_with_sizes.default(%qkv, [64, 32, 32], -1) : (tensor<5x128xbf16>) -> (tensor<5x64xbf16, #vllm_ir.layout<strides = [128, 1]>>, tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>, tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>)
  %d = vllm_ir.rms_norm %a : tensor<5x64xbf16, #vllm_ir.layout<strides = [128, 1]>> weight %qw : tensor<64xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<5x64xbf16>
  %e = vllm_ir.rms_norm %b : tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>> weight %kw : tensor<32xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<5x32xbf16>
  %f, %g = vllm_ir.rotary_embedding %positions, %d, %e, %table {head_size = 16 : i64, is_neox = true} : tensor<5xi64>, tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<32x16xbf16> -> tensor<5x64xbf16>, tensor<5x32xbf16>
  %h = torch.call @aten.mul.Tensor(%c, 1) : (tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>) -> tensor<5x32xbf16>
  vllm_ir.return (%f, %g, %h) : tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<5x32xbf16>
}

// -----

// The split is one of rows.
// CHECK-NOT: vllm_ir.fused =
// CHECK-LABEL: @rows(
// CHECK-NOT: qk_norm_rope
// CHECK: vllm_ir.return
vllm_ir.func functional @rows(%qkv: tensor<5x64xbf16>, %positions: tensor<2xi64>, %qw: tensor<16xbf16>, %kw: tensor<16xbf16>, %table: tensor<32x16xbf16>) -> (tensor<2x64xbf16>, tensor<2x64xbf16>, tensor<1x64xbf16>) {
  %a, %b, %c = torch.call @aten.split_with_sizes.default(%qkv, [2, 2, 1], 0) : (tensor<5x64xbf16>) -> (tensor<2x64xbf16>, tensor<2x64xbf16>, tensor<1x64xbf16>)
  %d = torch.call @aten.view.default(%a, [-1, 4, 16]) : (tensor<2x64xbf16>) -> tensor<2x4x16xbf16>
  %e = vllm_ir.rms_norm %d : tensor<2x4x16xbf16> weight %qw : tensor<16xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<2x4x16xbf16>
  %f = torch.call @aten.view.default(%e, [2, 64]) : (tensor<2x4x16xbf16>) -> tensor<2x64xbf16>
  %g = torch.call @aten.view.default(%b, [-1, 4, 16]) : (tensor<2x64xbf16>) -> tensor<2x4x16xbf16>
  %h = vllm_ir.rms_norm %g : tensor<2x4x16xbf16> weight %kw : tensor<16xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<2x4x16xbf16>
  %i = torch.call @aten.view.default(%h, [2, 64]) : (tensor<2x4x16xbf16>) -> tensor<2x64xbf16>
  %j, %l = vllm_ir.rotary_embedding %positions, %f, %i, %table {head_size = 16 : i64, is_neox = true} : tensor<2xi64>, tensor<2x64xbf16>, tensor<2x64xbf16>, tensor<32x16xbf16> -> tensor<2x64xbf16>, tensor<2x64xbf16>
  %m = torch.call @aten.mul.Tensor(%c, 1) : (tensor<1x64xbf16>) -> tensor<1x64xbf16>
  vllm_ir.return (%j, %l, %m) : tensor<2x64xbf16>, tensor<2x64xbf16>, tensor<1x64xbf16>
}

// -----

// With the cache behind it: one operation for all of it.
// CHECK: vllm_ir.fused = {qk_norm_rope_cache = ["%
// CHECK-LABEL: @cache(
// CHECK-NEXT: "vllm_ir.qk_norm_rope_and_cache"(%qkv, %positions, %qw, %kw, %table, %kc, %vc, %slots) {{.*}}epsilon = 1.000000e-06 : f64, num_heads = 4 : i64, num_kv_heads = 2 : i64, head_size = 16 : i64, is_neox = true
// CHECK-NOT: vllm_ir.rotary_embedding
// CHECK: vllm_ir.return
vllm_ir.func functional @cache(%qkv: tensor<5x128xbf16>, %positions: tensor<5xi64>, %qw: tensor<16xbf16>, %kw: tensor<16xbf16>, %table: tensor<32x16xbf16>, %kc: tensor<3x4x2x16xbf16>, %vc: tensor<3x4x2x16xbf16>, %slots: tensor<5xi64>) -> (tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<5x32xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>) {
  %a, %b, %c = torch.call @aten.split_with_sizes.default(%qkv, [64, 32, 32], -1) : (tensor<5x128xbf16>) -> (tensor<5x64xbf16, #vllm_ir.layout<strides = [128, 1]>>, tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>, tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>)
  %d = torch.call @aten.view.default(%a, [-1, 4, 16]) : (tensor<5x64xbf16, #vllm_ir.layout<strides = [128, 1]>>) -> tensor<5x4x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>>
  %e = vllm_ir.rms_norm %d : tensor<5x4x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>> weight %qw : tensor<16xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<5x4x16xbf16>
  %f = torch.call @aten.view.default(%e, [5, 64]) : (tensor<5x4x16xbf16>) -> tensor<5x64xbf16>
  %g = torch.call @aten.view.default(%b, [-1, 2, 16]) : (tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>) -> tensor<5x2x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>>
  %h = vllm_ir.rms_norm %g : tensor<5x2x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>> weight %kw : tensor<16xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<5x2x16xbf16>
  %i = torch.call @aten.view.default(%h, [5, 32]) : (tensor<5x2x16xbf16>) -> tensor<5x32xbf16>
  %j, %l = vllm_ir.rotary_embedding %positions, %f, %i, %table {head_size = 16 : i64, is_neox = true} : tensor<5xi64>, tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<32x16xbf16> -> tensor<5x64xbf16>, tensor<5x32xbf16>
  %m = torch.call @aten.view.default(%l, [-1, 2, 16]) : (tensor<5x32xbf16>) -> tensor<5x2x16xbf16>
  %n = torch.call @aten.view.default(%c, [-1, 2, 16]) : (tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>) -> tensor<5x2x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>>
  %o, %p = "vllm_ir.reshape_and_cache"(%m, %n, %kc, %vc, %slots) : (tensor<5x2x16xbf16>, tensor<5x2x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>, tensor<5xi64>) -> (tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>)
  %r = torch.call @aten.mul.Tensor(%c, 1) : (tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>) -> tensor<5x32xbf16>
  vllm_ir.return (%j, %l, %r, %o, %p) : tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<5x32xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>
}
