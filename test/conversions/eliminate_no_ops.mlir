// RUN: vllm-ir-opt %s -p eliminate-no-ops --split-input-file | filecheck %s

// Reshapes in a row are the last one, and the value itself where shape and strides are those it has.
// CHECK-LABEL: vllm_ir.func functional @reshapes(
// CHECK-NEXT: %b = torch.call @aten.view.default(%x, [8, 8]) : (tensor<4x16xf32>) -> tensor<8x8xf32>
// CHECK-NEXT: %e = torch.call @aten.neg.default(%x) : (tensor<4x16xf32>) -> tensor<4x16xf32>
// CHECK-NEXT: vllm_ir.return (%b, %e) : tensor<8x8xf32>, tensor<4x16xf32>
vllm_ir.func functional @reshapes(%x: tensor<4x16xf32>) -> (tensor<8x8xf32>, tensor<4x16xf32>) {
  %a = torch.call @aten.view.default(%x, [2, 2, 16]) : (tensor<4x16xf32>) -> tensor<2x2x16xf32>
  %b = torch.call @aten.view.default(%a, [8, 8]) : (tensor<2x2x16xf32>) -> tensor<8x8xf32>
  %c = torch.call @aten.unsqueeze.default(%b, 1) : (tensor<8x8xf32>) -> tensor<8x1x8xf32>
  %d = torch.call @aten.reshape.default(%c, [4, -1]) : (tensor<8x1x8xf32>) -> tensor<4x16xf32>
  %e = torch.call @aten.neg.default(%d) : (tensor<4x16xf32>) -> tensor<4x16xf32>
  vllm_ir.return (%b, %e) : tensor<8x8xf32>, tensor<4x16xf32>
}

// -----

// A reshape of a transposed tensor copies, and the two together would have other strides: they stay.
// CHECK-LABEL: vllm_ir.func functional @transposed_reshapes(
// CHECK: %b = torch.call @aten.reshape.default(%a, [16]) : (tensor<4x4xf32, #vllm_ir.layout<strides = [1, 4]>>) -> tensor<16xf32>
// CHECK-NEXT: %c = torch.call @aten.view.default(%b, [4, 4]) : (tensor<16xf32>) -> tensor<4x4xf32>
vllm_ir.func functional @transposed_reshapes(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %a = torch.call @aten.t.default(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32, #vllm_ir.layout<strides = [1, 4]>>
  %b = torch.call @aten.reshape.default(%a, [16]) : (tensor<4x4xf32, #vllm_ir.layout<strides = [1, 4]>>) -> tensor<16xf32>
  %c = torch.call @aten.view.default(%b, [4, 4]) : (tensor<16xf32>) -> tensor<4x4xf32>
  vllm_ir.return %c : tensor<4x4xf32>
}

// -----

// Views of everything: slices, an expansion, permutations that undo each other.
// CHECK-LABEL: vllm_ir.func functional @whole(
// CHECK-NEXT: %r = torch.call @aten.mm.default(%x, %x as 1) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
// CHECK-NEXT: vllm_ir.return %r : tensor<4x4xf32>
vllm_ir.func functional @whole(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %a = torch.call @aten.slice.Tensor(%x, -1, 0, 9223372036854775807, 1) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %b = torch.call @aten.expand.default(%a, [-1, 4], implicit = false) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %c = torch.call @aten.permute.default(%b, [0, 1]) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %d = torch.call @aten.t.default(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32, #vllm_ir.layout<strides = [1, 4]>>
  %e = torch.call @aten.transpose.int(%d, 0, 1) : (tensor<4x4xf32, #vllm_ir.layout<strides = [1, 4]>>) -> tensor<4x4xf32>
  %r = torch.call @aten.mm.default(%c, %e) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  vllm_ir.return %r : tensor<4x4xf32>
}

// -----

// The same type, but not the same elements: nothing is dropped.
// CHECK-LABEL: vllm_ir.func functional @not_whole(
// CHECK: @aten.transpose.int
// CHECK: @aten._neg_view.default
// CHECK: @aten.as_strided.default
vllm_ir.func functional @not_whole(%x: tensor<1x1xf32>, %y: tensor<4xf32>) -> (tensor<4x4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %a = torch.call @aten.expand.default(%x, [4, 4], implicit = false) : (tensor<1x1xf32>) -> tensor<4x4xf32, #vllm_ir.layout<strides = [0, 0]>>
  %b = torch.call @aten.transpose.int(%a, 0, 1) : (tensor<4x4xf32, #vllm_ir.layout<strides = [0, 0]>>) -> tensor<4x4xf32, #vllm_ir.layout<strides = [0, 0]>>
  %c = torch.call @aten.neg.default(%b) : (tensor<4x4xf32, #vllm_ir.layout<strides = [0, 0]>>) -> tensor<4x4xf32>
  %d = torch.call @aten._neg_view.default(%y) : (tensor<4xf32>) -> tensor<4xf32>
  %e = torch.call @aten.as_strided.default(%y, [4], [1], 0) : (tensor<4xf32>) -> tensor<4xf32>
  vllm_ir.return (%c, %d, %e) : tensor<4x4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// Elements that stay as they are: `x * 1` and `x - 0`, `x + 0` of integers. `x + 0` of floats makes 0.0 of -0.0, and a
// wider result is no identity.
// CHECK-LABEL: vllm_ir.func functional @elements(
// CHECK-NEXT: %c = torch.call @aten.add.Tensor(%x, 0, alpha = 1) : (tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: %f = torch.call @aten.mul.Tensor(%n, 1.0) : (tensor<4xi64>) -> tensor<4xf32>
// CHECK-NEXT: %r = torch.call @aten.sub.Tensor(%c, %x, alpha = 1)
// CHECK-NEXT: %s = torch.call @aten.mul.Tensor(%f, %n)
vllm_ir.func functional @elements(%x: tensor<4xf32>, %n: tensor<4xi64>) -> (tensor<4xf32>, tensor<4xf32>) {
  %a = torch.call @aten.mul.Tensor(%x, 1) : (tensor<4xf32>) -> tensor<4xf32>
  %b = torch.call @aten.add.Tensor(%a, -0.0, alpha = 3) : (tensor<4xf32>) -> tensor<4xf32>
  %c = torch.call @aten.add.Tensor(%b, 0, alpha = 1) : (tensor<4xf32>) -> tensor<4xf32>
  %d = torch.call @aten.sub.Tensor(%a, 0, alpha = 1) : (tensor<4xf32>) -> tensor<4xf32>
  %e = torch.call @aten.add.Tensor(%n, 0, alpha = 1) : (tensor<4xi64>) -> tensor<4xi64>
  %f = torch.call @aten.mul.Tensor(%e, 1.0) : (tensor<4xi64>) -> tensor<4xf32>
  %r = torch.call @aten.sub.Tensor(%c, %d, alpha = 1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %s = torch.call @aten.mul.Tensor(%f, %e) : (tensor<4xf32>, tensor<4xi64>) -> tensor<4xf32>
  vllm_ir.return (%r, %s) : tensor<4xf32>, tensor<4xf32>
}

// -----

// Copies go, but not those that are returned, lay elements out anew, or are there for a reason.
// CHECK-LABEL: vllm_ir.func functional @copies(
// CHECK-NEXT: %b = torch.call @aten.clone.default(%x, memory_format = none)
// CHECK-NEXT: %c = torch.call @aten.clone.default(%t, memory_format = #torch.memory_format<"contiguous_format">)
// CHECK-NEXT: %d = torch.call @aten.clone.default(%x, memory_format = none) attributes {vllm_ir.reason = "needed"}
// CHECK-NEXT: %r = torch.call @aten.addmm.default(%x, %c, %d, beta = 1, alpha = 1)
vllm_ir.func functional @copies(%x: tensor<4x4xf32>, %t: tensor<4x4xf32, #vllm_ir.layout<strides = [1, 4]>>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %a = torch.call @aten.clone.default(%x, memory_format = none) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %b = torch.call @aten.clone.default(%x, memory_format = none) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %c = torch.call @aten.clone.default(%t, memory_format = #torch.memory_format<"contiguous_format">) : (tensor<4x4xf32, #vllm_ir.layout<strides = [1, 4]>>) -> tensor<4x4xf32>
  %d = torch.call @aten.clone.default(%x, memory_format = none) attributes {vllm_ir.reason = "needed"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %r = torch.call @aten.addmm.default(%a, %c, %d, beta = 1, alpha = 1) : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  vllm_ir.return (%b, %r) : tensor<4x4xf32>, tensor<4x4xf32>
}

// -----

// Scatters of everything are the piece, in another shape if need be; one that puts back what is there is the base.
// CHECK-LABEL: vllm_ir.func functional @scatters(
// CHECK-NEXT: %a = torch.call @aten.neg.default(%piece) : (tensor<1x4xf32>) -> tensor<1x4xf32>
// CHECK-NEXT: %b = torch.call @aten.reshape.default(%row, [1, 4]) : (tensor<4xf32>) -> tensor<1x4xf32>
// CHECK-NEXT: %c = torch.call @aten.mul.Tensor(%a, %b) : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x4xf32>
// CHECK-NEXT: %d = torch.call @aten.slice_scatter.default(%x, %half, 1, 0, 2, 1) : (tensor<1x4xf32>, tensor<1x2xf32>) -> tensor<1x4xf32>
// CHECK-NEXT: %f = torch.call @aten.sub.Tensor(%x, %d, alpha = 1)
vllm_ir.func functional @scatters(%x: tensor<1x4xf32>, %piece: tensor<1x4xf32>, %row: tensor<4xf32>, %half: tensor<1x2xf32>) -> (tensor<1x4xf32>, tensor<1x4xf32>) {
  %whole = torch.call @aten.slice_scatter.default(%x, %piece, 1, 0, 4, 1) : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x4xf32>
  %a = torch.call @aten.neg.default(%whole) : (tensor<1x4xf32>) -> tensor<1x4xf32>
  %b = torch.call @aten.select_scatter.default(%x, %row, 0, 0) : (tensor<1x4xf32>, tensor<4xf32>) -> tensor<1x4xf32>
  %c = torch.call @aten.mul.Tensor(%a, %b) : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x4xf32>
  %d = torch.call @aten.slice_scatter.default(%x, %half, 1, 0, 2, 1) : (tensor<1x4xf32>, tensor<1x2xf32>) -> tensor<1x4xf32>
  %part = torch.call @aten.slice.Tensor(%x, 1, 1, 3, 1) : (tensor<1x4xf32>) -> tensor<1x2xf32, #vllm_ir.layout<strides = [4, 1]>>
  %back = torch.call @aten.slice_scatter.default(%x, %part, 1, 1, 3, 1) : (tensor<1x4xf32>, tensor<1x2xf32, #vllm_ir.layout<strides = [4, 1]>>) -> tensor<1x4xf32>
  %f = torch.call @aten.sub.Tensor(%back, %d, alpha = 1) : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x4xf32>
  vllm_ir.return (%c, %f) : tensor<1x4xf32>, tensor<1x4xf32>
}

// -----

// Symbolic sizes are compared as they are written: `2*s0 - s0` would be, an unknown one is not.
// CHECK-LABEL: vllm_ir.func functional @dynamic(
// CHECK-NEXT: %b = torch.call @aten.view.default(%x, [%n, 16]) : (tensor<?x4x4xf32, #vllm_ir.layout<sizes = ["s0", 4, 4]>>, i64) -> tensor<?x16xf32, #vllm_ir.layout<sizes = ["s0", 16]>>
// CHECK-NEXT: %e = torch.call @aten.slice.Tensor(%y, 0, 0, 9223372036854775807, 1) : (tensor<?xf32>) -> tensor<?xf32>
// CHECK-NEXT: %f = torch.call @aten.neg.default(%x)
// CHECK-NEXT: vllm_ir.return (%b, %e, %f)
vllm_ir.func functional @dynamic(%n: i64 {vllm_ir.symbol = "s0"}, %x: tensor<?x4x4xf32, #vllm_ir.layout<sizes = ["s0", 4, 4]>>, %y: tensor<?xf32>) -> (tensor<?x16xf32, #vllm_ir.layout<sizes = ["s0", 16]>>, tensor<?xf32>, tensor<?x4x4xf32, #vllm_ir.layout<sizes = ["s0", 4, 4]>>) {
  %a = torch.call @aten.view.default(%x, [%n, 2, 8]) : (tensor<?x4x4xf32, #vllm_ir.layout<sizes = ["s0", 4, 4]>>, i64) -> tensor<?x2x8xf32, #vllm_ir.layout<sizes = ["s0", 2, 8]>>
  %b = torch.call @aten.view.default(%a, [%n, 16]) : (tensor<?x2x8xf32, #vllm_ir.layout<sizes = ["s0", 2, 8]>>, i64) -> tensor<?x16xf32, #vllm_ir.layout<sizes = ["s0", 16]>>
  %c = torch.call @aten.slice.Tensor(%x, 0, 0, %n, 1) : (tensor<?x4x4xf32, #vllm_ir.layout<sizes = ["s0", 4, 4]>>, i64) -> tensor<?x4x4xf32, #vllm_ir.layout<sizes = ["s0", 4, 4]>>
  %e = torch.call @aten.slice.Tensor(%y, 0, 0, 9223372036854775807, 1) : (tensor<?xf32>) -> tensor<?xf32>
  %f = torch.call @aten.neg.default(%c) : (tensor<?x4x4xf32, #vllm_ir.layout<sizes = ["s0", 4, 4]>>) -> tensor<?x4x4xf32, #vllm_ir.layout<sizes = ["s0", 4, 4]>>
  vllm_ir.return (%b, %e, %f) : tensor<?x16xf32, #vllm_ir.layout<sizes = ["s0", 16]>>, tensor<?xf32>, tensor<?x4x4xf32, #vllm_ir.layout<sizes = ["s0", 4, 4]>>
}

// -----

// A copy was donated; what it is a copy of is still needed, and is not.
// CHECK-LABEL: vllm_ir.func functional @donated(
// CHECK: vllm_ir.fused_add_rms_norm %x, %r : tensor<4x8xf32>, tensor<4x8xf32> {epsilon = 1.000000e-05 : f64}
vllm_ir.func functional @donated(%x: tensor<4x8xf32>, %r: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %a = torch.call @aten.clone.default(%x, memory_format = none) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %n, %s = vllm_ir.fused_add_rms_norm %a, %r : tensor<4x8xf32>, tensor<4x8xf32> {donated = array<i64: 0>, epsilon = 1.0e-05 : f64} -> tensor<4x8xf32>, tensor<4x8xf32>
  %b = torch.call @aten.sub.Tensor(%n, %x, alpha = 1) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  vllm_ir.return (%b, %s) : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// What is about memory is left alone.
// CHECK-LABEL: vllm_ir.func @memory(
// CHECK-NEXT: @aten.mul.Tensor(%x, 1)
vllm_ir.func @memory(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = torch.call @aten.mul.Tensor(%x, 1) : (tensor<4xf32>) -> tensor<4xf32>
  %b = torch.call @aten.neg.default(%a) : (tensor<4xf32>) -> tensor<4xf32>
  vllm_ir.return %b : tensor<4xf32>
}
