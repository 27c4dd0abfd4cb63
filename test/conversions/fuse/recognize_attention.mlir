// RUN: vllm-ir-opt %s -p 'fuse{only=recognize_grouped_attention,recognize_cache_update explain=true}' --split-input-file | filecheck %s

// CHECK: vllm_ir.fused = {recognize_grouped_attention = ["%i"]}
// CHECK-LABEL: @grouped(
// CHECK-NEXT: %i, %i_1 = torch.call @aten._scaled_dot_product_flash_attention_for_cpu.default(%q, %k, %v, 0.0, true, attn_mask = none, scale = none) random
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @grouped(%q: tensor<1x4x6x16xbf16>, %k: tensor<1x2x6x16xbf16>, %v: tensor<1x2x6x16xbf16>) -> tensor<1x4x6x16xbf16> {
  %a = torch.call @aten.unsqueeze.default(%k, 2) : (tensor<1x2x6x16xbf16>) -> tensor<1x2x1x6x16xbf16>
  %b = torch.call @aten.expand.default(%a, [1, 2, 2, 6, 16], implicit = false) : (tensor<1x2x1x6x16xbf16>) -> tensor<1x2x2x6x16xbf16, #vllm_ir.layout<strides = [192, 96, 0, 16, 1]>>
  %c = torch.call @aten.clone.default(%b, memory_format = #torch.memory_format<"contiguous_format">) : (tensor<1x2x2x6x16xbf16, #vllm_ir.layout<strides = [192, 96, 0, 16, 1]>>) -> tensor<1x2x2x6x16xbf16>
  %d = torch.call @aten._unsafe_view.default(%c, [1, 4, 6, 16]) : (tensor<1x2x2x6x16xbf16>) -> tensor<1x4x6x16xbf16>
  %e = torch.call @aten.unsqueeze.default(%v, 2) : (tensor<1x2x6x16xbf16>) -> tensor<1x2x1x6x16xbf16>
  %f = torch.call @aten.expand.default(%e, [1, 2, 2, 6, 16], implicit = false) : (tensor<1x2x1x6x16xbf16>) -> tensor<1x2x2x6x16xbf16, #vllm_ir.layout<strides = [192, 96, 0, 16, 1]>>
  %g = torch.call @aten.clone.default(%f, memory_format = #torch.memory_format<"contiguous_format">) : (tensor<1x2x2x6x16xbf16, #vllm_ir.layout<strides = [192, 96, 0, 16, 1]>>) -> tensor<1x2x2x6x16xbf16>
  %h = torch.call @aten._unsafe_view.default(%g, [1, 4, 6, 16]) : (tensor<1x2x2x6x16xbf16>) -> tensor<1x4x6x16xbf16>
  %i, %j = torch.call @aten._scaled_dot_product_flash_attention_for_cpu.default(%q, %d, %h, 0.0, true, attn_mask = none, scale = none) random : (tensor<1x4x6x16xbf16>, tensor<1x4x6x16xbf16>, tensor<1x4x6x16xbf16>) -> (tensor<1x4x6x16xbf16>, tensor<1x4x6xf32, #vllm_ir.layout<strides = [24, 1, 4]>>)
  vllm_ir.return %i : tensor<1x4x6x16xbf16>
}

// -----

// The repeated keys are read as well.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}recognize_grouped_attention = [{{.*}}"%d: @aten._unsafe_view.default: %d is also used by %l"
// CHECK-LABEL: @repeated_used(
// CHECK: vllm_ir.return
vllm_ir.func functional @repeated_used(%q: tensor<1x4x6x16xbf16>, %k: tensor<1x2x6x16xbf16>, %v: tensor<1x2x6x16xbf16>) -> (tensor<1x4x6x16xbf16>, tensor<1x4x6x16xbf16>) {
  %a = torch.call @aten.unsqueeze.default(%k, 2) : (tensor<1x2x6x16xbf16>) -> tensor<1x2x1x6x16xbf16>
  %b = torch.call @aten.expand.default(%a, [1, 2, 2, 6, 16], implicit = false) : (tensor<1x2x1x6x16xbf16>) -> tensor<1x2x2x6x16xbf16, #vllm_ir.layout<strides = [192, 96, 0, 16, 1]>>
  %c = torch.call @aten.clone.default(%b, memory_format = #torch.memory_format<"contiguous_format">) : (tensor<1x2x2x6x16xbf16, #vllm_ir.layout<strides = [192, 96, 0, 16, 1]>>) -> tensor<1x2x2x6x16xbf16>
  %d = torch.call @aten._unsafe_view.default(%c, [1, 4, 6, 16]) : (tensor<1x2x2x6x16xbf16>) -> tensor<1x4x6x16xbf16>
  %e = torch.call @aten.unsqueeze.default(%v, 2) : (tensor<1x2x6x16xbf16>) -> tensor<1x2x1x6x16xbf16>
  %f = torch.call @aten.expand.default(%e, [1, 2, 2, 6, 16], implicit = false) : (tensor<1x2x1x6x16xbf16>) -> tensor<1x2x2x6x16xbf16, #vllm_ir.layout<strides = [192, 96, 0, 16, 1]>>
  %g = torch.call @aten.clone.default(%f, memory_format = #torch.memory_format<"contiguous_format">) : (tensor<1x2x2x6x16xbf16, #vllm_ir.layout<strides = [192, 96, 0, 16, 1]>>) -> tensor<1x2x2x6x16xbf16>
  %h = torch.call @aten._unsafe_view.default(%g, [1, 4, 6, 16]) : (tensor<1x2x2x6x16xbf16>) -> tensor<1x4x6x16xbf16>
  %i, %j = torch.call @aten._scaled_dot_product_flash_attention_for_cpu.default(%q, %d, %h, 0.0, false, attn_mask = none, scale = none) random : (tensor<1x4x6x16xbf16>, tensor<1x4x6x16xbf16>, tensor<1x4x6x16xbf16>) -> (tensor<1x4x6x16xbf16>, tensor<1x4x6xf32, #vllm_ir.layout<strides = [24, 1, 4]>>)
  %l = torch.call @aten.mul.Tensor(%d, 2) : (tensor<1x4x6x16xbf16>) -> tensor<1x4x6x16xbf16>
  vllm_ir.return (%i, %l) : tensor<1x4x6x16xbf16>, tensor<1x4x6x16xbf16>
}

// -----

// The heads of values are repeated in turns.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}recognize_grouped_attention = [{{.*}}"%e: @aten.unsqueeze.default: result 0 is tensor<1x1x2x6x16xbf16>, the pattern gives tensor<1x2x1x6x16xbf16>"
// CHECK-LABEL: @in_turns(
// CHECK: vllm_ir.return
vllm_ir.func functional @in_turns(%q: tensor<1x4x6x16xbf16>, %k: tensor<1x2x6x16xbf16>, %v: tensor<1x2x6x16xbf16>) -> tensor<1x4x6x16xbf16> {
  %a = torch.call @aten.unsqueeze.default(%k, 2) : (tensor<1x2x6x16xbf16>) -> tensor<1x2x1x6x16xbf16>
  %b = torch.call @aten.expand.default(%a, [1, 2, 2, 6, 16], implicit = false) : (tensor<1x2x1x6x16xbf16>) -> tensor<1x2x2x6x16xbf16, #vllm_ir.layout<strides = [192, 96, 0, 16, 1]>>
  %c = torch.call @aten.clone.default(%b, memory_format = #torch.memory_format<"contiguous_format">) : (tensor<1x2x2x6x16xbf16, #vllm_ir.layout<strides = [192, 96, 0, 16, 1]>>) -> tensor<1x2x2x6x16xbf16>
  %d = torch.call @aten._unsafe_view.default(%c, [1, 4, 6, 16]) : (tensor<1x2x2x6x16xbf16>) -> tensor<1x4x6x16xbf16>
  %e = torch.call @aten.unsqueeze.default(%v, 1) : (tensor<1x2x6x16xbf16>) -> tensor<1x1x2x6x16xbf16>
  %f = torch.call @aten.expand.default(%e, [1, 2, 2, 6, 16], implicit = false) : (tensor<1x1x2x6x16xbf16>) -> tensor<1x2x2x6x16xbf16, #vllm_ir.layout<strides = [192, 0, 96, 16, 1]>>
  %g = torch.call @aten.clone.default(%f, memory_format = #torch.memory_format<"contiguous_format">) : (tensor<1x2x2x6x16xbf16, #vllm_ir.layout<strides = [192, 0, 96, 16, 1]>>) -> tensor<1x2x2x6x16xbf16>
  %h = torch.call @aten._unsafe_view.default(%g, [1, 4, 6, 16]) : (tensor<1x2x2x6x16xbf16>) -> tensor<1x4x6x16xbf16>
  %i, %j = torch.call @aten._scaled_dot_product_flash_attention_for_cpu.default(%q, %d, %h, 0.0, false, attn_mask = none, scale = none) random : (tensor<1x4x6x16xbf16>, tensor<1x4x6x16xbf16>, tensor<1x4x6x16xbf16>) -> (tensor<1x4x6x16xbf16>, tensor<1x4x6xf32, #vllm_ir.layout<strides = [24, 1, 4]>>)
  vllm_ir.return %i : tensor<1x4x6x16xbf16>
}

// -----

// Elements are dropped out at random.
// CHECK-NOT: vllm_ir.fused =
// CHECK-LABEL: @dropout(
// CHECK: vllm_ir.return
vllm_ir.func functional @dropout(%q: tensor<1x4x6x16xbf16>, %k: tensor<1x2x6x16xbf16>, %v: tensor<1x2x6x16xbf16>) -> tensor<1x4x6x16xbf16> {
  %a = torch.call @aten.unsqueeze.default(%k, 2) : (tensor<1x2x6x16xbf16>) -> tensor<1x2x1x6x16xbf16>
  %b = torch.call @aten.expand.default(%a, [1, 2, 2, 6, 16], implicit = false) : (tensor<1x2x1x6x16xbf16>) -> tensor<1x2x2x6x16xbf16, #vllm_ir.layout<strides = [192, 96, 0, 16, 1]>>
  %c = torch.call @aten.clone.default(%b, memory_format = #torch.memory_format<"contiguous_format">) : (tensor<1x2x2x6x16xbf16, #vllm_ir.layout<strides = [192, 96, 0, 16, 1]>>) -> tensor<1x2x2x6x16xbf16>
  %d = torch.call @aten._unsafe_view.default(%c, [1, 4, 6, 16]) : (tensor<1x2x2x6x16xbf16>) -> tensor<1x4x6x16xbf16>
  %e = torch.call @aten.unsqueeze.default(%v, 2) : (tensor<1x2x6x16xbf16>) -> tensor<1x2x1x6x16xbf16>
  %f = torch.call @aten.expand.default(%e, [1, 2, 2, 6, 16], implicit = false) : (tensor<1x2x1x6x16xbf16>) -> tensor<1x2x2x6x16xbf16, #vllm_ir.layout<strides = [192, 96, 0, 16, 1]>>
  %g = torch.call @aten.clone.default(%f, memory_format = #torch.memory_format<"contiguous_format">) : (tensor<1x2x2x6x16xbf16, #vllm_ir.layout<strides = [192, 96, 0, 16, 1]>>) -> tensor<1x2x2x6x16xbf16>
  %h = torch.call @aten._unsafe_view.default(%g, [1, 4, 6, 16]) : (tensor<1x2x2x6x16xbf16>) -> tensor<1x4x6x16xbf16>
  %i = torch.call @aten._to_copy.default(%q, dtype = f32, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (tensor<1x4x6x16xbf16>) -> tensor<1x4x6x16xf32>
  %j = torch.call @aten._to_copy.default(%d, dtype = f32, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (tensor<1x4x6x16xbf16>) -> tensor<1x4x6x16xf32>
  %l = torch.call @aten._to_copy.default(%h, dtype = f32, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (tensor<1x4x6x16xbf16>) -> tensor<1x4x6x16xf32>
  %m = torch.call @aten.mul.Scalar(%i, 0.5) : (tensor<1x4x6x16xf32>) -> tensor<1x4x6x16xf32>
  %n = torch.call @aten.transpose.int(%j, -2, -1) : (tensor<1x4x6x16xf32>) -> tensor<1x4x16x6xf32, #vllm_ir.layout<strides = [384, 96, 1, 16]>>
  %o = torch.call @aten.mul.Scalar(%n, 0.5) : (tensor<1x4x16x6xf32, #vllm_ir.layout<strides = [384, 96, 1, 16]>>) -> tensor<1x4x16x6xf32, #vllm_ir.layout<strides = [384, 96, 1, 16]>>
  %p = torch.call @aten.expand.default(%m, [1, 4, 6, 16], implicit = false) : (tensor<1x4x6x16xf32>) -> tensor<1x4x6x16xf32>
  %r = torch.call @aten.view.default(%p, [4, 6, 16]) : (tensor<1x4x6x16xf32>) -> tensor<4x6x16xf32>
  %t = torch.call @aten.expand.default(%o, [1, 4, 16, 6], implicit = false) : (tensor<1x4x16x6xf32, #vllm_ir.layout<strides = [384, 96, 1, 16]>>) -> tensor<1x4x16x6xf32, #vllm_ir.layout<strides = [384, 96, 1, 16]>>
  %u = torch.call @aten.view.default(%t, [4, 16, 6]) : (tensor<1x4x16x6xf32, #vllm_ir.layout<strides = [384, 96, 1, 16]>>) -> tensor<4x16x6xf32, #vllm_ir.layout<strides = [96, 1, 16]>>
  %y = torch.call @aten.bmm.default(%r, %u) : (tensor<4x6x16xf32>, tensor<4x16x6xf32, #vllm_ir.layout<strides = [96, 1, 16]>>) -> tensor<4x6x6xf32>
  %z = torch.call @aten.view.default(%y, [1, 4, 6, 6]) : (tensor<4x6x6xf32>) -> tensor<1x4x6x6xf32>
  %aa = torch.call @aten._safe_softmax.default(%z, -1, none) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32>
  %ab, %ac = torch.call @aten.native_dropout.default(%aa, 0.5, true) random : (tensor<1x4x6x6xf32>) -> (tensor<1x4x6x6xf32>, tensor<1x4x6x6xi1>)
  %ad = torch.call @aten.expand.default(%ab, [1, 4, 6, 6], implicit = false) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32>
  %ae = torch.call @aten.view.default(%ad, [4, 6, 6]) : (tensor<1x4x6x6xf32>) -> tensor<4x6x6xf32>
  %af = torch.call @aten.expand.default(%l, [1, 4, 6, 16], implicit = false) : (tensor<1x4x6x16xf32>) -> tensor<1x4x6x16xf32>
  %ag = torch.call @aten.view.default(%af, [4, 6, 16]) : (tensor<1x4x6x16xf32>) -> tensor<4x6x16xf32>
  %ah = torch.call @aten.bmm.default(%ae, %ag) : (tensor<4x6x6xf32>, tensor<4x6x16xf32>) -> tensor<4x6x16xf32>
  %ai = torch.call @aten.view.default(%ah, [1, 4, 6, 16]) : (tensor<4x6x16xf32>) -> tensor<1x4x6x16xf32>
  %aj = torch.call @aten._to_copy.default(%ai, dtype = bf16, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (tensor<1x4x6x16xf32>) -> tensor<1x4x6x16xbf16>
  vllm_ir.return %aj : tensor<1x4x6x16xbf16>
}

// -----

// CHECK: vllm_ir.fused = {recognize_cache_update = ["%a"]}
// CHECK-LABEL: @update(
// CHECK-NEXT: %b, %a = "vllm_ir.write_static_cache"(%v, %k, %vc, %kc, %at)
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @update(%k: tensor<2x3x4x8xbf16>, %v: tensor<2x3x4x8xbf16>, %kc: tensor<2x3x16x8xbf16>, %vc: tensor<2x3x16x8xbf16>, %at: tensor<4xi64>) -> (tensor<2x3x16x8xbf16>, tensor<2x3x16x8xbf16>) {
  %a = torch.call @aten.index_copy.default(%kc, 2, %at, %k) : (tensor<2x3x16x8xbf16>, tensor<4xi64>, tensor<2x3x4x8xbf16>) -> tensor<2x3x16x8xbf16>
  %b = torch.call @aten.index_copy.default(%vc, 2, %at, %v) : (tensor<2x3x16x8xbf16>, tensor<4xi64>, tensor<2x3x4x8xbf16>) -> tensor<2x3x16x8xbf16>
  vllm_ir.return (%a, %b) : tensor<2x3x16x8xbf16>, tensor<2x3x16x8xbf16>
}

// -----

// CHECK: vllm_ir.fused = {recognize_cache_update = ["%b"]}
// CHECK-LABEL: @update_written(
// CHECK-NEXT: %a = vllm_ir.read %kc
// CHECK-NEXT: %c = vllm_ir.read %vc
// CHECK-NEXT: %d, %b = "vllm_ir.write_static_cache"(%v, %k, %c, %a, %at)
// CHECK-NEXT: %e = torch.call @aten.sum.default(%b, dtype = none)
// CHECK-NEXT: %f = torch.call @aten.sum.default(%d, dtype = none)
// CHECK-NEXT: %g = torch.call @aten.add.Tensor(%e, %f, alpha = 1)
// CHECK-NEXT: vllm_ir.write %b, %kc
// CHECK-NEXT: vllm_ir.write %d, %vc
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @update_written(%k: tensor<2x3x4x8xf32>, %v: tensor<2x3x4x8xf32>, %kc: !vllm_ir.buffer<2x3x16x8xf32> {vllm_ir.mutated}, %vc: !vllm_ir.buffer<2x3x16x8xf32> {vllm_ir.mutated}, %at: tensor<4xi64>) -> tensor<f32> {
  %a = vllm_ir.read %kc : !vllm_ir.buffer<2x3x16x8xf32> -> tensor<2x3x16x8xf32>
  %b = torch.call @aten.index_copy.default(%a, 2, %at, %k) : (tensor<2x3x16x8xf32>, tensor<4xi64>, tensor<2x3x4x8xf32>) -> tensor<2x3x16x8xf32>
  %c = vllm_ir.read %vc : !vllm_ir.buffer<2x3x16x8xf32> -> tensor<2x3x16x8xf32>
  %d = torch.call @aten.index_copy.default(%c, 2, %at, %v) : (tensor<2x3x16x8xf32>, tensor<4xi64>, tensor<2x3x4x8xf32>) -> tensor<2x3x16x8xf32>
  %e = torch.call @aten.sum.default(%b, dtype = none) : (tensor<2x3x16x8xf32>) -> tensor<f32>
  %f = torch.call @aten.sum.default(%d, dtype = none) : (tensor<2x3x16x8xf32>) -> tensor<f32>
  %g = torch.call @aten.add.Tensor(%e, %f, alpha = 1) : (tensor<f32>, tensor<f32>) -> tensor<f32>
  vllm_ir.write %b, %kc : tensor<2x3x16x8xf32>, !vllm_ir.buffer<2x3x16x8xf32>
  vllm_ir.write %d, %vc : tensor<2x3x16x8xf32>, !vllm_ir.buffer<2x3x16x8xf32>
  vllm_ir.return %g : tensor<f32>
}

// -----

// Keys and values go to other places.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}recognize_cache_update = [{{.*}}"%a: @aten.index_copy.default: %at has no further user aten.index_copy.default"
// CHECK-LABEL: @other_places(
// CHECK: vllm_ir.return
vllm_ir.func functional @other_places(%k: tensor<2x3x4x8xbf16>, %v: tensor<2x3x4x8xbf16>, %kc: tensor<2x3x16x8xbf16>, %vc: tensor<2x3x16x8xbf16>, %at: tensor<4xi64>, %on: tensor<4xi64>) -> (tensor<2x3x16x8xbf16>, tensor<2x3x16x8xbf16>) {
  %a = torch.call @aten.index_copy.default(%kc, 2, %at, %k) : (tensor<2x3x16x8xbf16>, tensor<4xi64>, tensor<2x3x4x8xbf16>) -> tensor<2x3x16x8xbf16>
  %b = torch.call @aten.index_copy.default(%vc, 2, %on, %v) : (tensor<2x3x16x8xbf16>, tensor<4xi64>, tensor<2x3x4x8xbf16>) -> tensor<2x3x16x8xbf16>
  vllm_ir.return (%a, %b) : tensor<2x3x16x8xbf16>, tensor<2x3x16x8xbf16>
}

// -----

// Places along another dimension.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}recognize_cache_update = [{{.*}}"%a: @aten.index_copy.default: before does not take operands of these types: {{.*}}index_copy_(): Source/destination tensor must have same slice shapes. Destination slice shape: torch.Size([2, 16, 8]) at dimension 2 and source slice shape: torch.Size([2, 4, 8]) at dimension 0."
// CHECK-LABEL: @other_dimension(
// CHECK: vllm_ir.return
vllm_ir.func functional @other_dimension(%k: tensor<2x4x3x8xbf16>, %v: tensor<2x4x3x8xbf16>, %kc: tensor<2x16x3x8xbf16>, %vc: tensor<2x16x3x8xbf16>, %at: tensor<4xi64>) -> (tensor<2x16x3x8xbf16>, tensor<2x16x3x8xbf16>) {
  %a = torch.call @aten.index_copy.default(%kc, 1, %at, %k) : (tensor<2x16x3x8xbf16>, tensor<4xi64>, tensor<2x4x3x8xbf16>) -> tensor<2x16x3x8xbf16>
  %b = torch.call @aten.index_copy.default(%vc, 1, %at, %v) : (tensor<2x16x3x8xbf16>, tensor<4xi64>, tensor<2x4x3x8xbf16>) -> tensor<2x16x3x8xbf16>
  vllm_ir.return (%a, %b) : tensor<2x16x3x8xbf16>, tensor<2x16x3x8xbf16>
}
