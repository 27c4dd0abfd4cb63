// RUN: vllm-ir-opt %s -p 'fuse{only=recognize_rotary,recognize_rotary_by_pair explain=true}' --split-input-file | filecheck %s

// Halves are turned.
// CHECK: vllm_ir.fused = {recognize_rotary = ["%g"]}
// CHECK-LABEL: @halves(
// CHECK-NEXT: %g = "vllm_ir.apply_rotary"(%x, %cos, %sin) <{is_neox = true}>
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @halves(%x: tensor<1x2x3x16xbf16>, %cos: tensor<1x1x3x16xbf16>, %sin: tensor<1x1x3x16xbf16>) -> tensor<1x2x3x16xbf16> {
  %a = torch.call @aten.mul.Tensor(%x, %cos) : (tensor<1x2x3x16xbf16>, tensor<1x1x3x16xbf16>) -> tensor<1x2x3x16xbf16>
  %b = torch.call @aten.slice.Tensor(%x, 3, 8, 9223372036854775807, 1) : (tensor<1x2x3x16xbf16>) -> tensor<1x2x3x8xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>
  %c = torch.call @aten.neg.default(%b) : (tensor<1x2x3x8xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>) -> tensor<1x2x3x8xbf16>
  %d = torch.call @aten.slice.Tensor(%x, 3, 0, 8, 1) : (tensor<1x2x3x16xbf16>) -> tensor<1x2x3x8xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>
  %e = torch.call @aten.cat.default([%c, %d], -1) : (tensor<1x2x3x8xbf16>, tensor<1x2x3x8xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>) -> tensor<1x2x3x16xbf16>
  %f = torch.call @aten.mul.Tensor(%e, %sin) : (tensor<1x2x3x16xbf16>, tensor<1x1x3x16xbf16>) -> tensor<1x2x3x16xbf16>
  %g = torch.call @aten.add.Tensor(%a, %f, alpha = 1) : (tensor<1x2x3x16xbf16>, tensor<1x2x3x16xbf16>) -> tensor<1x2x3x16xbf16>
  vllm_ir.return %g : tensor<1x2x3x16xbf16>
}

// -----

// CHECK: vllm_ir.fused = {recognize_rotary_by_pair = ["%j"]}
// CHECK-LABEL: @neighbours(
// CHECK-NEXT: %j = "vllm_ir.apply_rotary"(%x, %cos, %sin) <{is_neox = false}>
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @neighbours(%x: tensor<1x2x3x16xf32>, %cos: tensor<1x1x3x8xf32>, %sin: tensor<1x1x3x8xf32>) -> tensor<1x2x3x16xf32> {
  %a = torch.call @aten.slice.Tensor(%x, 3, 0, 9223372036854775807, 2) : (tensor<1x2x3x16xf32>) -> tensor<1x2x3x8xf32, #vllm_ir.layout<strides = [96, 48, 16, 2]>>
  %b = torch.call @aten.slice.Tensor(%x, 3, 1, 9223372036854775807, 2) : (tensor<1x2x3x16xf32>) -> tensor<1x2x3x8xf32, #vllm_ir.layout<strides = [96, 48, 16, 2]>>
  %c = torch.call @aten.mul.Tensor(%a, %cos) : (tensor<1x2x3x8xf32, #vllm_ir.layout<strides = [96, 48, 16, 2]>>, tensor<1x1x3x8xf32>) -> tensor<1x2x3x8xf32>
  %d = torch.call @aten.mul.Tensor(%b, %sin) : (tensor<1x2x3x8xf32, #vllm_ir.layout<strides = [96, 48, 16, 2]>>, tensor<1x1x3x8xf32>) -> tensor<1x2x3x8xf32>
  %e = torch.call @aten.sub.Tensor(%c, %d, alpha = 1) : (tensor<1x2x3x8xf32>, tensor<1x2x3x8xf32>) -> tensor<1x2x3x8xf32>
  %f = torch.call @aten.mul.Tensor(%b, %cos) : (tensor<1x2x3x8xf32, #vllm_ir.layout<strides = [96, 48, 16, 2]>>, tensor<1x1x3x8xf32>) -> tensor<1x2x3x8xf32>
  %g = torch.call @aten.mul.Tensor(%a, %sin) : (tensor<1x2x3x8xf32, #vllm_ir.layout<strides = [96, 48, 16, 2]>>, tensor<1x1x3x8xf32>) -> tensor<1x2x3x8xf32>
  %h = torch.call @aten.add.Tensor(%f, %g, alpha = 1) : (tensor<1x2x3x8xf32>, tensor<1x2x3x8xf32>) -> tensor<1x2x3x8xf32>
  %i = torch.call @aten.stack.default([%e, %h], -1) : (tensor<1x2x3x8xf32>, tensor<1x2x3x8xf32>) -> tensor<1x2x3x8x2xf32>
  %j = torch.call @aten.view.default(%i, [1, 2, 3, 16]) : (tensor<1x2x3x8x2xf32>) -> tensor<1x2x3x16xf32>
  vllm_ir.return %j : tensor<1x2x3x16xf32>
}

// -----

// The pieces are no halves.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}recognize_rotary = [{{.*}}"%e: @aten.slice.Tensor: result 0 is tensor<1x2x3x6xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>, the pattern gives tensor<1x2x3x8xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>"
// CHECK-LABEL: @uneven(
// CHECK-NOT: apply_rotary
// CHECK: vllm_ir.return
vllm_ir.func functional @uneven(%x: tensor<1x2x3x16xbf16>, %c: tensor<1x1x3x16xbf16>, %s: tensor<1x1x3x16xbf16>) -> tensor<1x2x3x16xbf16> {
  %a = torch.call @aten.mul.Tensor(%x, %c) : (tensor<1x2x3x16xbf16>, tensor<1x1x3x16xbf16>) -> tensor<1x2x3x16xbf16>
  %b = torch.call @aten.slice.Tensor(%x, 3, 6, 9223372036854775807, 1) : (tensor<1x2x3x16xbf16>) -> tensor<1x2x3x10xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>
  %d = torch.call @aten.neg.default(%b) : (tensor<1x2x3x10xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>) -> tensor<1x2x3x10xbf16>
  %e = torch.call @aten.slice.Tensor(%x, 3, 0, 6, 1) : (tensor<1x2x3x16xbf16>) -> tensor<1x2x3x6xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>
  %f = torch.call @aten.cat.default([%d, %e], -1) : (tensor<1x2x3x10xbf16>, tensor<1x2x3x6xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>) -> tensor<1x2x3x16xbf16>
  %g = torch.call @aten.mul.Tensor(%f, %s) : (tensor<1x2x3x16xbf16>, tensor<1x1x3x16xbf16>) -> tensor<1x2x3x16xbf16>
  %h = torch.call @aten.add.Tensor(%a, %g, alpha = 1) : (tensor<1x2x3x16xbf16>, tensor<1x2x3x16xbf16>) -> tensor<1x2x3x16xbf16>
  vllm_ir.return %h : tensor<1x2x3x16xbf16>
}

// -----

// A rotation the other way round.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}recognize_rotary = [{{.*}}"%b: @aten.slice.Tensor: aten.neg.default is expected here"
// CHECK-LABEL: @back(
// CHECK-NOT: apply_rotary
// CHECK: vllm_ir.return
vllm_ir.func functional @back(%x: tensor<1x2x3x16xbf16>, %c: tensor<1x1x3x16xbf16>, %s: tensor<1x1x3x16xbf16>) -> tensor<1x2x3x16xbf16> {
  %a = torch.call @aten.mul.Tensor(%x, %c) : (tensor<1x2x3x16xbf16>, tensor<1x1x3x16xbf16>) -> tensor<1x2x3x16xbf16>
  %b = torch.call @aten.slice.Tensor(%x, 3, 8, 9223372036854775807, 1) : (tensor<1x2x3x16xbf16>) -> tensor<1x2x3x8xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>
  %d = torch.call @aten.slice.Tensor(%x, 3, 0, 8, 1) : (tensor<1x2x3x16xbf16>) -> tensor<1x2x3x8xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>
  %e = torch.call @aten.neg.default(%d) : (tensor<1x2x3x8xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>) -> tensor<1x2x3x8xbf16>
  %f = torch.call @aten.cat.default([%b, %e], -1) : (tensor<1x2x3x8xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>, tensor<1x2x3x8xbf16>) -> tensor<1x2x3x16xbf16>
  %g = torch.call @aten.mul.Tensor(%f, %s) : (tensor<1x2x3x16xbf16>, tensor<1x1x3x16xbf16>) -> tensor<1x2x3x16xbf16>
  %h = torch.call @aten.add.Tensor(%a, %g, alpha = 1) : (tensor<1x2x3x16xbf16>, tensor<1x2x3x16xbf16>) -> tensor<1x2x3x16xbf16>
  vllm_ir.return %h : tensor<1x2x3x16xbf16>
}

// -----

// What is turned is another tensor.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}recognize_rotary = [{{.*}}"%b: @aten.slice.Tensor: %y stands where %x is expected"
// CHECK-LABEL: @another(
// CHECK-NOT: apply_rotary
// CHECK: vllm_ir.return
vllm_ir.func functional @another(%x: tensor<1x2x3x16xbf16>, %y: tensor<1x2x3x16xbf16>, %c: tensor<1x1x3x16xbf16>, %s: tensor<1x1x3x16xbf16>) -> tensor<1x2x3x16xbf16> {
  %a = torch.call @aten.mul.Tensor(%x, %c) : (tensor<1x2x3x16xbf16>, tensor<1x1x3x16xbf16>) -> tensor<1x2x3x16xbf16>
  %b = torch.call @aten.slice.Tensor(%y, 3, 8, 9223372036854775807, 1) : (tensor<1x2x3x16xbf16>) -> tensor<1x2x3x8xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>
  %d = torch.call @aten.neg.default(%b) : (tensor<1x2x3x8xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>) -> tensor<1x2x3x8xbf16>
  %e = torch.call @aten.slice.Tensor(%y, 3, 0, 8, 1) : (tensor<1x2x3x16xbf16>) -> tensor<1x2x3x8xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>
  %f = torch.call @aten.cat.default([%d, %e], -1) : (tensor<1x2x3x8xbf16>, tensor<1x2x3x8xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>) -> tensor<1x2x3x16xbf16>
  %g = torch.call @aten.mul.Tensor(%f, %s) : (tensor<1x2x3x16xbf16>, tensor<1x1x3x16xbf16>) -> tensor<1x2x3x16xbf16>
  %h = torch.call @aten.add.Tensor(%a, %g, alpha = 1) : (tensor<1x2x3x16xbf16>, tensor<1x2x3x16xbf16>) -> tensor<1x2x3x16xbf16>
  vllm_ir.return %h : tensor<1x2x3x16xbf16>
}

// -----

// The turned tensor is read as well.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}recognize_rotary = [{{.*}}"%e: @aten.cat.default: %e is also used by %i"
// CHECK-LABEL: @turned_used(
// CHECK-NOT: apply_rotary
// CHECK: vllm_ir.return
vllm_ir.func functional @turned_used(%x: tensor<1x2x3x16xbf16>, %c: tensor<1x1x3x16xbf16>, %s: tensor<1x1x3x16xbf16>) -> (tensor<1x2x3x16xbf16>, tensor<1x2x3x16xbf16>) {
  %a = torch.call @aten.slice.Tensor(%x, 3, 8, 9223372036854775807, 1) : (tensor<1x2x3x16xbf16>) -> tensor<1x2x3x8xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>
  %b = torch.call @aten.neg.default(%a) : (tensor<1x2x3x8xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>) -> tensor<1x2x3x8xbf16>
  %d = torch.call @aten.slice.Tensor(%x, 3, 0, 8, 1) : (tensor<1x2x3x16xbf16>) -> tensor<1x2x3x8xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>
  %e = torch.call @aten.cat.default([%b, %d], -1) : (tensor<1x2x3x8xbf16>, tensor<1x2x3x8xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>) -> tensor<1x2x3x16xbf16>
  %f = torch.call @aten.mul.Tensor(%x, %c) : (tensor<1x2x3x16xbf16>, tensor<1x1x3x16xbf16>) -> tensor<1x2x3x16xbf16>
  %g = torch.call @aten.mul.Tensor(%e, %s) : (tensor<1x2x3x16xbf16>, tensor<1x1x3x16xbf16>) -> tensor<1x2x3x16xbf16>
  %h = torch.call @aten.add.Tensor(%f, %g, alpha = 1) : (tensor<1x2x3x16xbf16>, tensor<1x2x3x16xbf16>) -> tensor<1x2x3x16xbf16>
  %i = torch.call @aten.add.Tensor(%e, 1, alpha = 1) : (tensor<1x2x3x16xbf16>) -> tensor<1x2x3x16xbf16>
  vllm_ir.return (%h, %i) : tensor<1x2x3x16xbf16>, tensor<1x2x3x16xbf16>
}

// -----

// Tables of float32 make float32 results.
// CHECK: vllm_ir.fused = {recognize_rotary = ["%g"]}
// CHECK-LABEL: @wide(
// CHECK-NEXT: %g = "vllm_ir.apply_rotary"(%x, %cos, %sin) <{is_neox = true}>
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @wide(%x: tensor<1x2x3x16xbf16>, %cos: tensor<1x1x3x16xf32>, %sin: tensor<1x1x3x16xf32>) -> tensor<1x2x3x16xf32> {
  %a = torch.call @aten.mul.Tensor(%x, %cos) : (tensor<1x2x3x16xbf16>, tensor<1x1x3x16xf32>) -> tensor<1x2x3x16xf32>
  %b = torch.call @aten.slice.Tensor(%x, 3, 8, 9223372036854775807, 1) : (tensor<1x2x3x16xbf16>) -> tensor<1x2x3x8xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>
  %c = torch.call @aten.neg.default(%b) : (tensor<1x2x3x8xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>) -> tensor<1x2x3x8xbf16>
  %d = torch.call @aten.slice.Tensor(%x, 3, 0, 8, 1) : (tensor<1x2x3x16xbf16>) -> tensor<1x2x3x8xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>
  %e = torch.call @aten.cat.default([%c, %d], -1) : (tensor<1x2x3x8xbf16>, tensor<1x2x3x8xbf16, #vllm_ir.layout<strides = [96, 48, 16, 1]>>) -> tensor<1x2x3x16xbf16>
  %f = torch.call @aten.mul.Tensor(%e, %sin) : (tensor<1x2x3x16xbf16>, tensor<1x1x3x16xf32>) -> tensor<1x2x3x16xf32>
  %g = torch.call @aten.add.Tensor(%a, %f, alpha = 1) : (tensor<1x2x3x16xf32>, tensor<1x2x3x16xf32>) -> tensor<1x2x3x16xf32>
  vllm_ir.return %g : tensor<1x2x3x16xf32>
}
