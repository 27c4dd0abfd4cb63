// RUN: vllm-ir-opt %s -p convert-to-stablehlo --split-input-file | filecheck %s

// An exponent that is known is a few multiplications.
// CHECK: func.func public @main(%x: tensor<2xi32>) -> tensor<2xi32> {
// CHECK-NEXT: [[X2:%.*]] = stablehlo.multiply %x, %x : tensor<2xi32>
// CHECK-NEXT: [[X3:%.*]] = stablehlo.multiply [[X2]], %x : tensor<2xi32>
// CHECK-NEXT: [[X6:%.*]] = stablehlo.multiply [[X3]], [[X3]] : tensor<2xi32>
// CHECK-NEXT: func.return [[X6]] : tensor<2xi32>
vllm_ir.func functional @main(%x: tensor<2xi32>) -> tensor<2xi32> {
  %y = torch.call @aten.pow.Tensor_Scalar(%x, 6) : (tensor<2xi32>) -> tensor<2xi32>
  vllm_ir.return (%y) : tensor<2xi32>
}

// -----

// One that is not is a loop over its bits; negative exponents leave 1, -1 and 0.
// CHECK: func.func public @main(%x: tensor<2xi8>, %n: tensor<2xi8>) -> tensor<2xi8> {
// CHECK-NOT: stablehlo.power
// CHECK: [[NEGATIVE:%.*]] = stablehlo.compare LT, %n
// CHECK: "stablehlo.while"
// CHECK: stablehlo.shift_right_logical
// CHECK: [[SIZE:%.*]] = stablehlo.abs %x
// CHECK-NOT: stablehlo.power
// CHECK: func.return
vllm_ir.func functional @main(%x: tensor<2xi8>, %n: tensor<2xi8>) -> tensor<2xi8> {
  %y = torch.call @aten.pow.Tensor_Tensor(%x, %n) : (tensor<2xi8>, tensor<2xi8>) -> tensor<2xi8>
  vllm_ir.return (%y) : tensor<2xi8>
}

// -----

// Unsigned exponents are not negative.
// CHECK: func.func public @main(%n: tensor<2xui8>) -> tensor<2xui8> {
// CHECK-NOT: stablehlo.compare LT
// CHECK: stablehlo.while
// CHECK-NOT: stablehlo.power
// CHECK: func.return
vllm_ir.func functional @main(%n: tensor<2xui8>) -> tensor<2xui8> {
  %y = torch.call @aten.pow.Scalar(3, %n) : (tensor<2xui8>) -> tensor<2xui8>
  vllm_ir.return (%y) : tensor<2xui8>
}

// -----

// Floating-point numbers have an operation for it.
// CHECK: stablehlo.power %x, %n : tensor<2xf32>
vllm_ir.func functional @main(%x: tensor<2xf32>, %n: tensor<2xf32>) -> tensor<2xf32> {
  %y = torch.call @aten.pow.Tensor_Tensor(%x, %n) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  vllm_ir.return (%y) : tensor<2xf32>
}
