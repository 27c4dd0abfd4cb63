// RUN: vllm-ir-opt %s -p forward-scatters,dce --split-input-file | filecheck %s
// RUN: vllm-ir-opt %s -p 'forward-scatters{limit=1}' --split-input-file | filecheck %s --check-prefix LIMIT
// RUN: vllm-ir-opt %s -p 'forward-scatters{exact=true}' --split-input-file | filecheck %s --check-prefix EXACT

// Split, change two of three pieces, put them back, split again.
// CHECK-LABEL: vllm_ir.func functional @split_scatter_split(
// CHECK-NEXT: %q, %k, %v = torch.call @aten.split_with_sizes.default(%x, [2, 1, 1], 0)
// CHECK-NEXT: %rq = torch.call @aten.neg.default(%q)
// CHECK-NEXT: %rk = torch.call @aten.neg.default(%k)
// CHECK-NEXT: %q2, %k2, %v2 = torch.call @aten.split_with_sizes.default(%x, [2, 1, 1], 0)
// CHECK-NEXT: torch.call @aten.cat.default([%rq, %rk, %v2], 0)
// LIMIT-LABEL: @split_scatter_split(
// LIMIT: %q2, %k2, %v2 = torch.call @aten.split_with_sizes.default(%y2, [2, 1, 1], 0)
// LIMIT-NEXT: torch.call @aten.cat.default([%rq, %k2, %v2], 0)
// EXACT-LABEL: @split_scatter_split(
// EXACT: torch.call @aten.cat.default([%rq, %rk, %v2], 0)
vllm_ir.func functional @split_scatter_split(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %q, %k, %v = torch.call @aten.split_with_sizes.default(%x, [2, 1, 1], 0) : (tensor<4x4xf32>) -> (tensor<2x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>)
  %rq = torch.call @aten.neg.default(%q) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %rk = torch.call @aten.neg.default(%k) : (tensor<1x4xf32>) -> tensor<1x4xf32>
  %y1 = torch.call @aten.slice_scatter.default(%x, %rq, 0, 0, 2, 1) : (tensor<4x4xf32>, tensor<2x4xf32>) -> tensor<4x4xf32>
  %y2 = torch.call @aten.slice_scatter.default(%y1, %rk, 0, 2, 3, 1) : (tensor<4x4xf32>, tensor<1x4xf32>) -> tensor<4x4xf32>
  %q2, %k2, %v2 = torch.call @aten.split_with_sizes.default(%y2, [2, 1, 1], 0) : (tensor<4x4xf32>) -> (tensor<2x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>)
  %r = torch.call @aten.cat.default([%q2, %k2, %v2], 0) : (tensor<2x4xf32>, tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<4x4xf32>
  vllm_ir.return %r : tensor<4x4xf32>
}

// -----

// Other sizes: the first piece reads a part of what was put in, the second a part and more. Both stay.
// CHECK-LABEL: vllm_ir.func functional @other_sizes(
// CHECK: %a, %b = torch.call @aten.split_with_sizes.default(%y2, [1, 3], 0)
// CHECK-NEXT: torch.call @aten.mul.Tensor(%a, %b)
vllm_ir.func functional @other_sizes(%x: tensor<4x4xf32>, %q: tensor<2x4xf32>, %k: tensor<1x4xf32>) -> tensor<3x4xf32> {
  %y1 = torch.call @aten.slice_scatter.default(%x, %q, 0, 0, 2, 1) : (tensor<4x4xf32>, tensor<2x4xf32>) -> tensor<4x4xf32>
  %y2 = torch.call @aten.slice_scatter.default(%y1, %k, 0, 2, 3, 1) : (tensor<4x4xf32>, tensor<1x4xf32>) -> tensor<4x4xf32>
  %a, %b = torch.call @aten.split_with_sizes.default(%y2, [1, 3], 0) : (tensor<4x4xf32>) -> (tensor<1x4xf32>, tensor<3x4xf32>)
  %r = torch.call @aten.mul.Tensor(%a, %b) : (tensor<1x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
  vllm_ir.return %r : tensor<3x4xf32>
}

// -----

// The same sizes along the other dimension are other elements; what reads the whole value reads it still.
// CHECK-LABEL: vllm_ir.func functional @other_dimension(
// CHECK: %y = torch.call @aten.slice_scatter.default(%x, %q, 0, 0, 2, 1)
// CHECK-NEXT: %a, %b = torch.call @aten.split.Tensor(%y, 2, 1)
// CHECK-NEXT: %c = torch.call @aten.mm.default(%y, %a)
// CHECK-NEXT: %d = torch.call @aten.mm.default(%q, %b)
vllm_ir.func functional @other_dimension(%x: tensor<4x4xf32>, %q: tensor<2x4xf32>) -> (tensor<4x2xf32>, tensor<2x2xf32>) {
  %y = torch.call @aten.slice_scatter.default(%x, %q, 0, 0, 2, 1) : (tensor<4x4xf32>, tensor<2x4xf32>) -> tensor<4x4xf32>
  %a, %b = torch.call @aten.split.Tensor(%y, 2, 1) : (tensor<4x4xf32>) -> (tensor<4x2xf32, #vllm_ir.layout<strides = [4, 1]>>, tensor<4x2xf32, #vllm_ir.layout<strides = [4, 1]>>)
  %e = torch.call @aten.slice.Tensor(%y, 0, 0, 2, 1) : (tensor<4x4xf32>) -> tensor<2x4xf32>
  %c = torch.call @aten.mm.default(%y, %a) : (tensor<4x4xf32>, tensor<4x2xf32, #vllm_ir.layout<strides = [4, 1]>>) -> tensor<4x2xf32>
  %d = torch.call @aten.mm.default(%e, %b) : (tensor<2x4xf32>, tensor<4x2xf32, #vllm_ir.layout<strides = [4, 1]>>) -> tensor<2x2xf32>
  vllm_ir.return (%c, %d) : tensor<4x2xf32>, tensor<2x2xf32>
}

// -----

// A selection out of a view of the whole; and a piece with other strides, which views of it have too. A result of the
// function has those that it states. With `exact`, nobody gets it.
// CHECK-LABEL: vllm_ir.func functional @strides(
// CHECK-NEXT: %e = torch.call @aten.neg.default(%row) : (tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: %b = vllm_ir.relayout %half : tensor<4x2xf32> -> tensor<4x2xf32, #vllm_ir.layout<strides = [4, 1]>>
// CHECK-NEXT: %f = torch.call @aten.t.default(%half) : (tensor<4x2xf32>) -> tensor<2x4xf32, #vllm_ir.layout<strides = [1, 2]>>
// CHECK-NEXT: %g = torch.call @aten.neg.default(%f) : (tensor<2x4xf32, #vllm_ir.layout<strides = [1, 2]>>) -> tensor<2x4xf32, #vllm_ir.layout<strides = [1, 2]>>
// CHECK-NEXT: vllm_ir.return (%e, %b, %g)
// EXACT-LABEL: @strides(
// EXACT: %e = torch.call @aten.neg.default(%row)
// EXACT: %b = torch.call @aten.slice.Tensor(%z
vllm_ir.func functional @strides(%x: tensor<4x4xf32>, %row: tensor<4xf32>, %half: tensor<4x2xf32>) -> (tensor<4xf32>, tensor<4x2xf32, #vllm_ir.layout<strides = [4, 1]>>, tensor<2x4xf32, #vllm_ir.layout<strides = [1, 2]>>) {
  %y = torch.call @aten.select_scatter.default(%x, %row, 0, 3) : (tensor<4x4xf32>, tensor<4xf32>) -> tensor<4x4xf32>
  %a = torch.call @aten.view.default(%y, [2, 2, 4]) : (tensor<4x4xf32>) -> tensor<2x2x4xf32>
  %c = torch.call @aten.select.int(%a, 0, 1) : (tensor<2x2x4xf32>) -> tensor<2x4xf32>
  %d = torch.call @aten.select.int(%c, 0, -1) : (tensor<2x4xf32>) -> tensor<4xf32>
  %e = torch.call @aten.neg.default(%d) : (tensor<4xf32>) -> tensor<4xf32>
  %z = torch.call @aten.slice_scatter.default(%x, %half, 1, 1, 3, 1) : (tensor<4x4xf32>, tensor<4x2xf32>) -> tensor<4x4xf32>
  %b = torch.call @aten.slice.Tensor(%z, 1, 1, 3, 1) : (tensor<4x4xf32>) -> tensor<4x2xf32, #vllm_ir.layout<strides = [4, 1]>>
  %f = torch.call @aten.t.default(%b) : (tensor<4x2xf32, #vllm_ir.layout<strides = [4, 1]>>) -> tensor<2x4xf32, #vllm_ir.layout<strides = [1, 4]>>
  %g = torch.call @aten.neg.default(%f) : (tensor<2x4xf32, #vllm_ir.layout<strides = [1, 4]>>) -> tensor<2x4xf32, #vllm_ir.layout<strides = [1, 2]>>
  vllm_ir.return (%e, %b, %g) : tensor<4xf32>, tensor<4x2xf32, #vllm_ir.layout<strides = [4, 1]>>, tensor<2x4xf32, #vllm_ir.layout<strides = [1, 2]>>
}

// -----

// Rows of an expanded tensor have one place in memory, but a scatter changes only one of them.
// CHECK-LABEL: vllm_ir.func functional @expanded(
// CHECK: %b = torch.call @aten.select.int(%e, 0, 1)
// CHECK-NEXT: torch.call @aten.sub.Tensor(%row, %b, alpha = 1)
vllm_ir.func functional @expanded(%x: tensor<1x4xf32>, %row: tensor<4xf32>) -> tensor<4xf32> {
  %e = torch.call @aten.expand.default(%x, [4, 4], implicit = false) : (tensor<1x4xf32>) -> tensor<4x4xf32, #vllm_ir.layout<strides = [0, 1]>>
  %y = torch.call @aten.select_scatter.default(%e, %row, 0, 0) : (tensor<4x4xf32, #vllm_ir.layout<strides = [0, 1]>>, tensor<4xf32>) -> tensor<4x4xf32, #vllm_ir.layout<strides = [0, 1]>>
  %a = torch.call @aten.select.int(%y, 0, 0) : (tensor<4x4xf32, #vllm_ir.layout<strides = [0, 1]>>) -> tensor<4xf32>
  %b = torch.call @aten.select.int(%y, 0, 1) : (tensor<4x4xf32, #vllm_ir.layout<strides = [0, 1]>>) -> tensor<4xf32>
  %r = torch.call @aten.sub.Tensor(%a, %b, alpha = 1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  vllm_ir.return %r : tensor<4xf32>
}

// -----

// Symbolic places that are written alike are the same; of others nothing is known.
// CHECK-LABEL: vllm_ir.func functional @dynamic(
// CHECK-NEXT: %y = torch.call @aten.slice_scatter.default(%x, %p, 0, 0, %n, 1)
// CHECK-NEXT: %b = torch.call @aten.slice.Tensor(%x, 0, %n, 9223372036854775807, 1)
// CHECK-NEXT: %c = torch.call @aten.slice.Tensor(%y, 0, 0, %m, 1)
// CHECK-NEXT: vllm_ir.return (%p, %b, %c)
vllm_ir.func functional @dynamic(%n: i64 {vllm_ir.symbol = "s0"}, %m: i64 {vllm_ir.symbol = "s1"}, %x: tensor<?xf32, #vllm_ir.layout<sizes = ["s0 + s1"]>>, %p: tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>) -> (tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>, tensor<?xf32, #vllm_ir.layout<sizes = ["s1"]>>, tensor<?xf32, #vllm_ir.layout<sizes = ["s1"]>>) {
  %y = torch.call @aten.slice_scatter.default(%x, %p, 0, 0, %n, 1) : (tensor<?xf32, #vllm_ir.layout<sizes = ["s0 + s1"]>>, tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>, i64) -> tensor<?xf32, #vllm_ir.layout<sizes = ["s0 + s1"]>>
  %a = torch.call @aten.slice.Tensor(%y, 0, 0, %n, 1) : (tensor<?xf32, #vllm_ir.layout<sizes = ["s0 + s1"]>>, i64) -> tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>
  %b = torch.call @aten.slice.Tensor(%y, 0, %n, 9223372036854775807, 1) : (tensor<?xf32, #vllm_ir.layout<sizes = ["s0 + s1"]>>, i64) -> tensor<?xf32, #vllm_ir.layout<sizes = ["s1"]>>
  %c = torch.call @aten.slice.Tensor(%y, 0, 0, %m, 1) : (tensor<?xf32, #vllm_ir.layout<sizes = ["s0 + s1"]>>, i64) -> tensor<?xf32, #vllm_ir.layout<sizes = ["s1"]>>
  vllm_ir.return (%a, %b, %c) : tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>, tensor<?xf32, #vllm_ir.layout<sizes = ["s1"]>>, tensor<?xf32, #vllm_ir.layout<sizes = ["s1"]>>
}

// -----

// The piece is given away to an operator, and handed on to a later reader: it is not given away any more.
// CHECK-LABEL: vllm_ir.func functional @donated(
// CHECK: vllm_ir.fused_add_rms_norm %p, %r : tensor<2x8xf32>, tensor<2x8xf32> {epsilon = 1.000000e-05 : f64}
vllm_ir.func functional @donated(%x: tensor<4x8xf32>, %p: tensor<2x8xf32>, %r: tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>) {
  %y = torch.call @aten.slice_scatter.default(%x, %p, 0, 0, 2, 1) : (tensor<4x8xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %n, %s = vllm_ir.fused_add_rms_norm %p, %r : tensor<2x8xf32>, tensor<2x8xf32> {donated = array<i64: 0>, epsilon = 1.0e-05 : f64} -> tensor<2x8xf32>, tensor<2x8xf32>
  %a = torch.call @aten.slice.Tensor(%y, 0, 0, 2, 1) : (tensor<4x8xf32>) -> tensor<2x8xf32>
  %b = torch.call @aten.neg.default(%a) : (tensor<2x8xf32>) -> tensor<2x8xf32>
  vllm_ir.return (%n, %s, %b) : tensor<2x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>
}
