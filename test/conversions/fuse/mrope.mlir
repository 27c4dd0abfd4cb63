// RUN: vllm-ir-opt %s -p 'fuse{only=qk_norm_mrope_cache,qk_norm_mrope_cache_static_quant explain=true}' --split-input-file | filecheck %s

// Sections are any that fill the table; the queries are quantised as well.
// CHECK: vllm_ir.fused = {qk_norm_mrope_cache = ["%{{[a-z_0-9]+}}"], qk_norm_mrope_cache_static_quant = ["%{{[a-z_0-9]+}}"]}
// CHECK-LABEL: @quantised(
// CHECK-NEXT: %m, %{{[a-z_0-9]+}}, %{{[a-z_0-9]+}}, %[[KEYS:[a-z_0-9]+]], %l = "vllm_ir.qk_norm_mrope_and_cache_static_fp8_quant"(%qkv, %positions, %w, %w, %table, %kc, %vc, %slots, %scale) {{.*}}num_heads = 4 : i64, num_kv_heads = 2 : i64, head_size = 16 : i64, is_neox = true, mrope_section = [2 : i64, 3 : i64, 3 : i64], mrope_interleaved = false
// CHECK-NEXT: vllm_ir.return (%m, %[[KEYS]], %l)
vllm_ir.func functional @quantised(%qkv: tensor<5x128xbf16>, %positions: tensor<3x5xi64>, %w: tensor<16xbf16>, %table: tensor<32x16xbf16>, %kc: tensor<3x4x2x16xbf16>, %vc: tensor<3x4x2x16xbf16>, %slots: tensor<5xi64>, %scale: tensor<1xf32>) -> (tensor<5x64xf8E4M3FN>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>) {
  %a, %b, %c = torch.call @aten.split_with_sizes.default(%qkv, [64, 32, 32], -1) : (tensor<5x128xbf16>) -> (tensor<5x64xbf16, #vllm_ir.layout<strides = [128, 1]>>, tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>, tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>)
  %d = torch.call @aten.view.default(%a, [-1, 4, 16]) : (tensor<5x64xbf16, #vllm_ir.layout<strides = [128, 1]>>) -> tensor<5x4x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>>
  %e = vllm_ir.rms_norm %d : tensor<5x4x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>> weight %w : tensor<16xbf16> {epsilon = 1.0e-06 : f64} -> tensor<5x4x16xbf16>
  %f = torch.call @aten.view.default(%e, [5, 64]) : (tensor<5x4x16xbf16>) -> tensor<5x64xbf16>
  %g = torch.call @aten.view.default(%b, [-1, 2, 16]) : (tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>) -> tensor<5x2x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>>
  %h = vllm_ir.rms_norm %g : tensor<5x2x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>> weight %w : tensor<16xbf16> {epsilon = 1.0e-06 : f64} -> tensor<5x2x16xbf16>
  %i = torch.call @aten.view.default(%h, [5, 32]) : (tensor<5x2x16xbf16>) -> tensor<5x32xbf16>
  %q, %j = "vllm_ir.mrope_embedding"(%positions, %f, %i, %table) <{head_size = 16 : i64, is_neox = true, mrope_section = [2 : i64, 3 : i64, 3 : i64], mrope_interleaved = false}> : (tensor<3x5xi64>, tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<32x16xbf16>) -> (tensor<5x64xbf16>, tensor<5x32xbf16>)
  %m = "vllm_ir.static_scaled_fp8_quant"(%q, %scale) : (tensor<5x64xbf16>, tensor<1xf32>) -> tensor<5x64xf8E4M3FN>
  %n = torch.call @aten.view.default(%j, [-1, 2, 16]) : (tensor<5x32xbf16>) -> tensor<5x2x16xbf16>
  %o = torch.call @aten.view.default(%c, [-1, 2, 16]) : (tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>) -> tensor<5x2x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>>
  %k, %l = "vllm_ir.reshape_and_cache"(%n, %o, %kc, %vc, %slots) : (tensor<5x2x16xbf16>, tensor<5x2x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>, tensor<5xi64>) -> (tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>)
  vllm_ir.return (%m, %k, %l) : tensor<5x64xf8E4M3FN>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>
}

// -----

// Two axes; a fusion is for three.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {qk_norm_mrope_cache = ["%q: vllm_ir.mrope_embedding: argument mrope_section.2 is no constant"
// CHECK-LABEL: @two_axes(
// CHECK-NOT: vllm_ir.qk_norm_mrope_and_cache
// CHECK: vllm_ir.return
vllm_ir.func functional @two_axes(%qkv: tensor<5x128xbf16>, %positions: tensor<2x5xi64>, %w: tensor<16xbf16>, %table: tensor<32x16xbf16>, %kc: tensor<3x4x2x16xbf16>, %vc: tensor<3x4x2x16xbf16>, %slots: tensor<5xi64>) -> (tensor<5x64xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>) {
  %a, %b, %c = torch.call @aten.split_with_sizes.default(%qkv, [64, 32, 32], -1) : (tensor<5x128xbf16>) -> (tensor<5x64xbf16, #vllm_ir.layout<strides = [128, 1]>>, tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>, tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>)
  %d = torch.call @aten.view.default(%a, [-1, 4, 16]) : (tensor<5x64xbf16, #vllm_ir.layout<strides = [128, 1]>>) -> tensor<5x4x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>>
  %e = vllm_ir.rms_norm %d : tensor<5x4x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>> weight %w : tensor<16xbf16> {epsilon = 1.0e-06 : f64} -> tensor<5x4x16xbf16>
  %f = torch.call @aten.view.default(%e, [5, 64]) : (tensor<5x4x16xbf16>) -> tensor<5x64xbf16>
  %g = torch.call @aten.view.default(%b, [-1, 2, 16]) : (tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>) -> tensor<5x2x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>>
  %h = vllm_ir.rms_norm %g : tensor<5x2x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>> weight %w : tensor<16xbf16> {epsilon = 1.0e-06 : f64} -> tensor<5x2x16xbf16>
  %i = torch.call @aten.view.default(%h, [5, 32]) : (tensor<5x2x16xbf16>) -> tensor<5x32xbf16>
  %q, %j = "vllm_ir.mrope_embedding"(%positions, %f, %i, %table) <{head_size = 16 : i64, is_neox = true, mrope_section = [3 : i64, 5 : i64], mrope_interleaved = false}> : (tensor<2x5xi64>, tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<32x16xbf16>) -> (tensor<5x64xbf16>, tensor<5x32xbf16>)
  %n = torch.call @aten.view.default(%j, [-1, 2, 16]) : (tensor<5x32xbf16>) -> tensor<5x2x16xbf16>
  %o = torch.call @aten.view.default(%c, [-1, 2, 16]) : (tensor<5x32xbf16, #vllm_ir.layout<strides = [128, 1]>>) -> tensor<5x2x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>>
  %k, %l = "vllm_ir.reshape_and_cache"(%n, %o, %kc, %vc, %slots) : (tensor<5x2x16xbf16>, tensor<5x2x16xbf16, #vllm_ir.layout<strides = [128, 16, 1]>>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>, tensor<5xi64>) -> (tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>)
  vllm_ir.return (%q, %k, %l) : tensor<5x64xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>
}
