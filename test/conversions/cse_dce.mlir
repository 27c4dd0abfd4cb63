// RUN: vllm-ir-opt %s -p cse,dce --split-input-file | filecheck %s

// Equal reads are one where nothing between them writes, and two where something does.
// CHECK-LABEL: vllm_ir.func @writes(
// CHECK-NEXT: %a = torch.call @aten.mul.Tensor(%x, 2) reads(%x)
// CHECK-NEXT: %w = torch.call @aten.add_.Tensor(%x, 1, alpha = 1) reads(%x) writes(%x) returns [0]
// CHECK-NEXT: %b = torch.call @aten.mul.Tensor(%x, 2) reads(%x)
// CHECK-NEXT: vllm_ir.return (%a, %b, %b as 2)
vllm_ir.func @writes(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %a = torch.call @aten.mul.Tensor(%x, 2) reads(%x) : (!vllm_ir.buffer<4xf32>) -> tensor<4xf32>
  %w = torch.call @aten.add_.Tensor(%x, 1, alpha = 1) reads(%x) writes(%x) returns [0] : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<4xf32>
  %b = torch.call @aten.mul.Tensor(%x, 2) reads(%x) : (!vllm_ir.buffer<4xf32>) -> tensor<4xf32>
  %c = torch.call @aten.mul.Tensor(%x, 2) reads(%x) : (!vllm_ir.buffer<4xf32>) -> tensor<4xf32>
  vllm_ir.return (%a, %b, %c) : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// Random numbers are drawn each time, used or not; what acts outside happens.
// CHECK-LABEL: vllm_ir.func functional @effects(
// CHECK-COUNT-3: @aten.bernoulli.p(%x, 0.5, generator = none) random
// CHECK-NEXT: @aten._assert_async.msg(%y, "no") external
// CHECK-NEXT: @aten._assert_async.msg(%y, "no") external
vllm_ir.func functional @effects(%x: tensor<4xf32>, %y: tensor<i1>) -> (tensor<4xf32>, tensor<4xf32>) {
  %a = torch.call @aten.bernoulli.p(%x, 0.5, generator = none) random : (tensor<4xf32>) -> tensor<4xf32>
  %b = torch.call @aten.bernoulli.p(%x, 0.5, generator = none) random : (tensor<4xf32>) -> tensor<4xf32>
  %c = torch.call @aten.bernoulli.p(%x, 0.5, generator = none) random : (tensor<4xf32>) -> tensor<4xf32>
  torch.call @aten._assert_async.msg(%y, "no") external : (tensor<i1>) -> ()
  torch.call @aten._assert_async.msg(%y, "no") external : (tensor<i1>) -> ()
  vllm_ir.return (%a, %b) : tensor<4xf32>, tensor<4xf32>
}

// -----

// Calls in value form are values like all others; constants that differ in sign alone, and results with other strides,
// are not equal. Each new memory is its own.
// CHECK-LABEL: vllm_ir.func functional @values(
// CHECK-NEXT: %a = torch.call @aten.add_.Tensor(%x, %y, alpha = 1) updates [0]
// CHECK-NEXT: %c = torch.call @aten.add.Tensor(%a, 0.0, alpha = 1)
// CHECK-NEXT: %d = torch.call @aten.add.Tensor(%a, -0.0, alpha = 1)
// CHECK-NEXT: %e = vllm_ir.relayout %a
// CHECK-NEXT: %f = vllm_ir.relayout %a
// CHECK-NEXT: %g = vllm_ir.alloc %a
// CHECK-NEXT: %h = vllm_ir.alloc %a
vllm_ir.func functional @values(%x: tensor<4x4xf32>, %y: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32, #vllm_ir.layout<strides = [1, 4]>>, tensor<4x4xf32, #vllm_ir.layout<strides = [8, 1]>>, !vllm_ir.buffer<4x4xf32>, !vllm_ir.buffer<4x4xf32>) {
  %a = torch.call @aten.add_.Tensor(%x, %y, alpha = 1) updates [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %b = torch.call @aten.add_.Tensor(%x, %y, alpha = 1) updates [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %c = torch.call @aten.add.Tensor(%a, 0.0, alpha = 1) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %d = torch.call @aten.add.Tensor(%b, -0.0, alpha = 1) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %e = vllm_ir.relayout %a : tensor<4x4xf32> -> tensor<4x4xf32, #vllm_ir.layout<strides = [1, 4]>>
  %f = vllm_ir.relayout %b : tensor<4x4xf32> -> tensor<4x4xf32, #vllm_ir.layout<strides = [8, 1]>>
  %g = vllm_ir.alloc %a : tensor<4x4xf32> -> !vllm_ir.buffer<4x4xf32>
  %h = vllm_ir.alloc %a : tensor<4x4xf32> -> !vllm_ir.buffer<4x4xf32>
  vllm_ir.return (%c, %d, %e, %f, %g, %h) : tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32, #vllm_ir.layout<strides = [1, 4]>>, tensor<4x4xf32, #vllm_ir.layout<strides = [8, 1]>>, !vllm_ir.buffer<4x4xf32>, !vllm_ir.buffer<4x4xf32>
}

// -----

// The first of two equal values was donated, the second is needed: the one that is left is not donated.
// CHECK-LABEL: vllm_ir.func functional @donated(
// CHECK-NEXT: %a = torch.call @aten.mul.Tensor(%x, 2.0)
// CHECK-NEXT: vllm_ir.fused_add_rms_norm %a, %r : tensor<4x8xf32>, tensor<4x8xf32> {epsilon = 1.000000e-05 : f64}
// CHECK-NEXT: vllm_ir.return (%n, %s, %a)
vllm_ir.func functional @donated(%x: tensor<4x8xf32>, %r: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %a = torch.call @aten.mul.Tensor(%x, 2.0) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %n, %s = vllm_ir.fused_add_rms_norm %a, %r : tensor<4x8xf32>, tensor<4x8xf32> {donated = array<i64: 0>, epsilon = 1.0e-05 : f64} -> tensor<4x8xf32>, tensor<4x8xf32>
  %b = torch.call @aten.mul.Tensor(%x, 2.0) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  vllm_ir.return (%n, %s, %b) : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}
