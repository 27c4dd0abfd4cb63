// RUN: vllm-ir-opt %s -p coalesce-splits --split-input-file | filecheck %s
// RUN: vllm-ir-opt %s -p 'coalesce-splits{limit=0}' --split-input-file | filecheck %s --check-prefix LIMIT

// Slices, along a dimension that is counted from either end, become one split; so does the second split.
// CHECK-LABEL: vllm_ir.func functional @slices(
// CHECK-NEXT: %a, %b, %c = torch.call @aten.split_with_sizes.default(%x, [8, 4, 4], 1)
// CHECK-NEXT: vllm_ir.return (%a, %b, %c, %a as 3, %b as 4, %c as 5)
// LIMIT-LABEL: @slices(
// LIMIT-COUNT-3: @aten.slice.Tensor
vllm_ir.func functional @slices(%x: tensor<4x16xf32>) -> (tensor<4x8xf32, #vllm_ir.layout<strides = [16, 1]>>, tensor<4x4xf32, #vllm_ir.layout<strides = [16, 1]>>, tensor<4x4xf32, #vllm_ir.layout<strides = [16, 1]>>, tensor<4x8xf32, #vllm_ir.layout<strides = [16, 1]>>, tensor<4x4xf32, #vllm_ir.layout<strides = [16, 1]>>, tensor<4x4xf32, #vllm_ir.layout<strides = [16, 1]>>) {
  %b = torch.call @aten.slice.Tensor(%x, -1, 8, 12, 1) : (tensor<4x16xf32>) -> tensor<4x4xf32, #vllm_ir.layout<strides = [16, 1]>>
  %c = torch.call @aten.slice.Tensor(%x, 1, -4, 9223372036854775807, 1) : (tensor<4x16xf32>) -> tensor<4x4xf32, #vllm_ir.layout<strides = [16, 1]>>
  %a = torch.call @aten.slice.Tensor(%x, 1, 0, 8, 1) : (tensor<4x16xf32>) -> tensor<4x8xf32, #vllm_ir.layout<strides = [16, 1]>>
  %d, %e, %f = torch.call @aten.split_with_sizes.default(%x, [8, 4, 4], -1) : (tensor<4x16xf32>) -> (tensor<4x8xf32, #vllm_ir.layout<strides = [16, 1]>>, tensor<4x4xf32, #vllm_ir.layout<strides = [16, 1]>>, tensor<4x4xf32, #vllm_ir.layout<strides = [16, 1]>>)
  vllm_ir.return (%a, %b, %c, %d, %e, %f) : tensor<4x8xf32, #vllm_ir.layout<strides = [16, 1]>>, tensor<4x4xf32, #vllm_ir.layout<strides = [16, 1]>>, tensor<4x4xf32, #vllm_ir.layout<strides = [16, 1]>>, tensor<4x8xf32, #vllm_ir.layout<strides = [16, 1]>>, tensor<4x4xf32, #vllm_ir.layout<strides = [16, 1]>>, tensor<4x4xf32, #vllm_ir.layout<strides = [16, 1]>>
}

// -----

// Splits of all kinds with the same pieces are one; one of other sizes is another, and so are pieces of the other
// dimension.
// CHECK-LABEL: vllm_ir.func functional @splits(
// CHECK-NEXT: %a, %b = torch.call @aten.split_with_sizes.default(%x, [2, 2], 0)
// CHECK-NEXT: %e, %f = torch.call @aten.split_with_sizes.default(%x, [1, 3], 0)
// CHECK-NEXT: %g, %h = torch.call @aten.split.Tensor(%x, 2, 1)
// CHECK-NEXT: torch.call @aten.cat.default([%a, %b, %a as 2, %e, %f], 0)
vllm_ir.func functional @splits(%x: tensor<4x4xf32>) -> (tensor<10x4xf32>, tensor<4x2xf32>) {
  %a, %b = torch.call @aten.split.Tensor(%x, 2, 0) : (tensor<4x4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>)
  %c, %d = torch.call @aten.split_with_sizes.default(%x, [2, 2], 0) : (tensor<4x4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>)
  %e, %f = torch.call @aten.split_with_sizes.default(%x, [1, 3], 0) : (tensor<4x4xf32>) -> (tensor<1x4xf32>, tensor<3x4xf32>)
  %g, %h = torch.call @aten.split.Tensor(%x, 2, 1) : (tensor<4x4xf32>) -> (tensor<4x2xf32, #vllm_ir.layout<strides = [4, 1]>>, tensor<4x2xf32, #vllm_ir.layout<strides = [4, 1]>>)
  %i = torch.call @aten.slice.Tensor(%x, 0, 0, 2, 1) : (tensor<4x4xf32>) -> tensor<2x4xf32>
  %r = torch.call @aten.cat.default([%a, %d, %i, %e, %f], 0) : (tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<1x4xf32>, tensor<3x4xf32>) -> tensor<10x4xf32>
  %s = torch.call @aten.sub.Tensor(%g, %h, alpha = 1) : (tensor<4x2xf32, #vllm_ir.layout<strides = [4, 1]>>, tensor<4x2xf32, #vllm_ir.layout<strides = [4, 1]>>) -> tensor<4x2xf32>
  vllm_ir.return (%r, %s) : tensor<10x4xf32>, tensor<4x2xf32>
}

// -----

// A gap, an overlap, steps, two dimensions, and different values: no splits.
// CHECK-LABEL: vllm_ir.func functional @no_split(
// CHECK-NOT: split
// CHECK: vllm_ir.return
vllm_ir.func functional @no_split(%gap: tensor<8xf32>, %overlap: tensor<8xf32>, %steps: tensor<8xf32>, %square: tensor<2x2xf32>, %other: tensor<2x2xf32>) -> (tensor<3xf32>, tensor<5xf32>, tensor<4xf32>, tensor<2x2xf32>, tensor<1x2xf32>) {
  %a = torch.call @aten.slice.Tensor(%gap, 0, 0, 3, 1) : (tensor<8xf32>) -> tensor<3xf32>
  %b = torch.call @aten.slice.Tensor(%gap, 0, 5, 8, 1) : (tensor<8xf32>) -> tensor<3xf32>
  %c = torch.call @aten.add.Tensor(%a, %b, alpha = 1) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  %d = torch.call @aten.slice.Tensor(%overlap, 0, 0, 5, 1) : (tensor<8xf32>) -> tensor<5xf32>
  %e = torch.call @aten.slice.Tensor(%overlap, 0, 3, 8, 1) : (tensor<8xf32>) -> tensor<5xf32>
  %f = torch.call @aten.add.Tensor(%d, %e, alpha = 1) : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xf32>
  %g = torch.call @aten.slice.Tensor(%steps, 0, 0, 8, 2) : (tensor<8xf32>) -> tensor<4xf32, #vllm_ir.layout<strides = [2]>>
  %h = torch.call @aten.slice.Tensor(%steps, 0, 1, 8, 2) : (tensor<8xf32>) -> tensor<4xf32, #vllm_ir.layout<strides = [2]>>
  %i = torch.call @aten.add.Tensor(%g, %h, alpha = 1) : (tensor<4xf32, #vllm_ir.layout<strides = [2]>>, tensor<4xf32, #vllm_ir.layout<strides = [2]>>) -> tensor<4xf32>
  %j = torch.call @aten.slice.Tensor(%square, 0, 0, 1, 1) : (tensor<2x2xf32>) -> tensor<1x2xf32>
  %k = torch.call @aten.slice.Tensor(%square, 1, 1, 2, 1) : (tensor<2x2xf32>) -> tensor<2x1xf32, #vllm_ir.layout<strides = [2, 1]>>
  %l = torch.call @aten.add.Tensor(%j, %k, alpha = 1) : (tensor<1x2xf32>, tensor<2x1xf32, #vllm_ir.layout<strides = [2, 1]>>) -> tensor<2x2xf32>
  %m = torch.call @aten.slice.Tensor(%other, 0, 1, 2, 1) : (tensor<2x2xf32>) -> tensor<1x2xf32>
  vllm_ir.return (%c, %f, %i, %l, %m) : tensor<3xf32>, tensor<5xf32>, tensor<4xf32>, tensor<2x2xf32>, tensor<1x2xf32>
}

// -----

// Other dimensions may be dynamic. Along a dynamic one, the second of two equal splits goes; slices do not become one.
// CHECK-LABEL: vllm_ir.func functional @dynamic(
// CHECK-NEXT: %a, %b = torch.call @aten.split_with_sizes.default(%x, [8, 8], 1)
// CHECK-NEXT: %c, %d = torch.call @aten.split_with_sizes.default(%y, [%n, %n], 0)
// CHECK-NEXT: %g = torch.call @aten.slice.Tensor(%z, 0, 0, %n, 1)
// CHECK-NEXT: %h = torch.call @aten.slice.Tensor(%z, 0, %n, 9223372036854775807, 1)
// CHECK-NEXT: vllm_ir.return (%a, %b, %c, %d, %c as 4, %d as 5, %g, %h)
vllm_ir.func functional @dynamic(%n: i64 {vllm_ir.symbol = "s0"}, %x: tensor<?x16xf32, #vllm_ir.layout<sizes = ["s0", 16]>>, %y: tensor<?xf32, #vllm_ir.layout<sizes = ["2*s0"]>>, %z: tensor<?xf32, #vllm_ir.layout<sizes = ["2*s0"]>>) -> (tensor<?x8xf32, #vllm_ir.layout<sizes = ["s0", 8], strides = [16, 1]>>, tensor<?x8xf32, #vllm_ir.layout<sizes = ["s0", 8], strides = [16, 1]>>, tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>, tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>, tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>, tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>, tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>, tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>) {
  %a = torch.call @aten.slice.Tensor(%x, 1, 0, 8, 1) : (tensor<?x16xf32, #vllm_ir.layout<sizes = ["s0", 16]>>) -> tensor<?x8xf32, #vllm_ir.layout<sizes = ["s0", 8], strides = [16, 1]>>
  %b = torch.call @aten.slice.Tensor(%x, 1, 8, 16, 1) : (tensor<?x16xf32, #vllm_ir.layout<sizes = ["s0", 16]>>) -> tensor<?x8xf32, #vllm_ir.layout<sizes = ["s0", 8], strides = [16, 1]>>
  %c, %d = torch.call @aten.split_with_sizes.default(%y, [%n, %n], 0) : (tensor<?xf32, #vllm_ir.layout<sizes = ["2*s0"]>>, i64) -> (tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>, tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>)
  %e, %f = torch.call @aten.split.Tensor(%y, %n, 0) : (tensor<?xf32, #vllm_ir.layout<sizes = ["2*s0"]>>, i64) -> (tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>, tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>)
  %g = torch.call @aten.slice.Tensor(%z, 0, 0, %n, 1) : (tensor<?xf32, #vllm_ir.layout<sizes = ["2*s0"]>>, i64) -> tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>
  %h = torch.call @aten.slice.Tensor(%z, 0, %n, 9223372036854775807, 1) : (tensor<?xf32, #vllm_ir.layout<sizes = ["2*s0"]>>, i64) -> tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>
  vllm_ir.return (%a, %b, %c, %d, %e, %f, %g, %h) : tensor<?x8xf32, #vllm_ir.layout<sizes = ["s0", 8], strides = [16, 1]>>, tensor<?x8xf32, #vllm_ir.layout<sizes = ["s0", 8], strides = [16, 1]>>, tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>, tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>, tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>, tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>, tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>, tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>
}
