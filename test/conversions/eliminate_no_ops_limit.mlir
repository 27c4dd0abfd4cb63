// RUN: vllm-ir-opt %s -p 'eliminate-no-ops{limit=2}' | filecheck %s

// CHECK-LABEL: vllm_ir.func functional @main(
// CHECK-NEXT: %c = torch.call @aten.mul.Tensor(%x, 1) : (tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: %d = torch.call @aten.neg.default(%c) : (tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: vllm_ir.return %d : tensor<4xf32>
vllm_ir.func functional @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = torch.call @aten.view.default(%x, [4]) : (tensor<4xf32>) -> tensor<4xf32>
  %b = torch.call @aten.mul.Tensor(%a, 1) : (tensor<4xf32>) -> tensor<4xf32>
  %c = torch.call @aten.mul.Tensor(%b, 1) : (tensor<4xf32>) -> tensor<4xf32>
  %d = torch.call @aten.neg.default(%c) : (tensor<4xf32>) -> tensor<4xf32>
  vllm_ir.return %d : tensor<4xf32>
}
