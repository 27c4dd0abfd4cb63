// RUN: vllm-ir-opt %s -p 'functionalize{limit=1}' | filecheck %s
// RUN: vllm-ir-opt %s -p 'functionalize{limit=5}' | filecheck %s --check-prefix FIVE

// What the memory holds behind the last rewrite is written to it, and the rest finds it there.
// CHECK-LABEL: vllm_ir.func @main(
// CHECK: %sum_2 = torch.call @aten.select_scatter.default(%x_1, %sum_1, 0, 1)
// CHECK-NEXT: vllm_ir.write %sum_2, %x : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
// CHECK-NEXT: %all = torch.call @aten.neg.default(%x) reads(%x) : (!vllm_ir.buffer<4x6xf32>) -> tensor<4x6xf32>
// A buffer that was the result of a rewritten call is the window that the call was given.
// CHECK-NEXT: %zero = torch.call @aten.zero_.default(%row) reads(%row) writes(%row) returns [0]
// CHECK-NEXT: vllm_ir.return (%all, %zero) : tensor<4x6xf32>, !vllm_ir.buffer<6xf32, offset = 6>
// CHECK-LABEL: vllm_ir.func @second(
// CHECK-NEXT: torch.call @aten.zero_.default(%x)

// Rewrites are counted through all functions. The end of a function is one.
// FIVE-LABEL: vllm_ir.func functional @main(
// FIVE-LABEL: vllm_ir.func @second(
// FIVE: %zero = torch.call @aten.zero.default(%x_1) : (tensor<4xf32>) -> tensor<4xf32>
// FIVE-NEXT: vllm_ir.write %zero, %x : tensor<4xf32>, !vllm_ir.buffer<4xf32>

vllm_ir.func @main(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) -> (tensor<4x6xf32>, !vllm_ir.buffer<6xf32, offset = 6> {vllm_ir.aliases = 0 : i64}) {
  %row = vllm_ir.view @aten.select.int(%x, 0, 1) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 6>
  %sum = torch.call @aten.add_.Tensor(%row, %y, alpha = 1) reads(%row) writes(%row) returns [0] : (!vllm_ir.buffer<6xf32, offset = 6>, tensor<6xf32>) -> !vllm_ir.buffer<6xf32, offset = 6>
  %all = torch.call @aten.neg.default(%x) reads(%x) : (!vllm_ir.buffer<4x6xf32>) -> tensor<4x6xf32>
  %zero = torch.call @aten.zero_.default(%sum) reads(%sum) writes(%sum) returns [0] : (!vllm_ir.buffer<6xf32, offset = 6>) -> !vllm_ir.buffer<6xf32, offset = 6>
  vllm_ir.return (%all, %zero) : tensor<4x6xf32>, !vllm_ir.buffer<6xf32, offset = 6>
}
vllm_ir.func @second(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}) {
  %zero = torch.call @aten.zero_.default(%x) reads(%x) writes(%x) returns [0] : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<4xf32>
  vllm_ir.return ()
}
