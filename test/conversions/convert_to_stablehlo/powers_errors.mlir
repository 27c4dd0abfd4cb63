// RUN: vllm-ir-opt %s -p convert-to-stablehlo --split-input-file --verify-diagnostics | filecheck %s

// CHECK: user.py:3: @aten.pow.Tensor_Scalar: the exponent of integers is the negative number -1, an error in eager mode; convert the base to a floating-point type
vllm_ir.func functional @main(%x: tensor<2xi32>) -> tensor<2xi32> {
  %y = torch.call @aten.pow.Tensor_Scalar(%x, -1) : (tensor<2xi32>) -> tensor<2xi32> loc("user.py":3:0)
  vllm_ir.return (%y) : tensor<2xi32>
}

// -----

// CHECK: user.py:3: @aten.pow.Tensor_Scalar: the exponent 128 does not fit into i8, an error in eager mode; convert the base to a wider type
vllm_ir.func functional @main(%x: tensor<2xi8>) -> tensor<2xi8> {
  %y = torch.call @aten.pow.Tensor_Scalar(%x, 128) : (tensor<2xi8>) -> tensor<2xi8> loc("user.py":3:0)
  vllm_ir.return (%y) : tensor<2xi8>
}
