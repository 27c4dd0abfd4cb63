// RUN: vllm-ir-opt %s -p apply-pdl | filecheck %s

// Rewrites that are written in PDL see calls of PyTorch's operators, and ops of the registry, as what they are.
// CHECK: %s = torch.call @aten.relu.default(%x)
// CHECK-NEXT: %n = vllm_ir.rms_norm %s : tensor<3x8xf32> weight %w
// CHECK-NEXT: vllm_ir.return %n
vllm_ir.func functional @main(%x: tensor<3x8xf32>, %w: tensor<8xf32>) -> tensor<3x8xf32> {
  %s = torch.call @aten.relu.default(%x) : (tensor<3x8xf32>) -> tensor<3x8xf32>
  %t = torch.call @aten.relu.default(%s) : (tensor<3x8xf32>) -> tensor<3x8xf32>
  %n = vllm_ir.rms_norm %t : tensor<3x8xf32> weight %w : tensor<8xf32> {epsilon = 1.0e-05 : f64} -> tensor<3x8xf32>
  vllm_ir.return %n : tensor<3x8xf32>
}

pdl.pattern @relu_of_relu : benefit(1) {
  %x = pdl.operand
  %kind = pdl.type
  %relu = pdl.attribute = @aten.relu.default
  %inner = pdl.operation "torch.call" (%x : !pdl.value) {"callee" = %relu} -> (%kind : !pdl.type)
  %value = pdl.result 0 of %inner
  %outer = pdl.operation "torch.call" (%value : !pdl.value) {"callee" = %relu} -> (%kind : !pdl.type)
  pdl.rewrite %outer {
    pdl.replace %outer with (%value : !pdl.value)
  }
}
