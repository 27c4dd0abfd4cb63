// RUN: vllm-ir-opt %s -p convert-to-stablehlo --split-input-file | filecheck %s

// The result that is the new contents of an argument is stated there; writes of slices are updates of slices.
// CHECK: func.func public @main(%kv: tensor<3x4xf32> {tf.aliasing_output = 1 : i32}, %x: tensor<4xf32>, %n: tensor<i64> {vllm_ir.symbol = "s0"}) -> (tensor<f32>, tensor<3x4xf32> {vllm_ir.aliases = 0 : i64}) attributes {vllm_ir.original_output_count = 1 : i64} {
// CHECK-NEXT: [[ONE:%.*]] = stablehlo.constant dense<1> : tensor<i32>
// CHECK-NEXT: [[ROW:%.*]] = stablehlo.reshape %x : (tensor<4xf32>) -> tensor<1x4xf32>
// CHECK-NEXT: [[ZERO:%.*]] = stablehlo.constant dense<0> : tensor<i32>
// CHECK-NEXT: [[NEW:%.*]] = "stablehlo.dynamic_update_slice"(%kv, [[ROW]], [[ONE]], [[ZERO]]) : (tensor<3x4xf32>, tensor<1x4xf32>, tensor<i32>, tensor<i32>) -> tensor<3x4xf32>
// CHECK: [[SUM:%.*]] = stablehlo.reduce
// CHECK: func.return [[SUM]], [[NEW]]
vllm_ir.func functional @main(%kv: tensor<3x4xf32>, %x: tensor<4xf32>, %n: i64 {vllm_ir.symbol = "s0"}) -> (tensor<f32>, tensor<3x4xf32> {vllm_ir.aliases = 0 : i64}) attributes {vllm_ir.original_output_count = 1 : i64} {
  %new = torch.call @aten.select_scatter.default(%kv, %x, 0, 1) : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  %sum = torch.call @aten.sum.default(%new, dtype = none) : (tensor<3x4xf32>) -> tensor<f32>
  vllm_ir.return (%sum, %new) : tensor<f32>, tensor<3x4xf32>
}

// -----

// Narrow types are computed in f32 and rounded once; numbers are not rounded before.
// CHECK: func.func public @main(%x: tensor<2xbf16>) -> tensor<2xbf16> {
// CHECK-NEXT: [[WIDE:%.*]] = stablehlo.convert %x : (tensor<2xbf16>) -> tensor<2xf32>
// CHECK-NEXT: [[NUMBER:%.*]] = stablehlo.constant dense<1.000000e-01> : tensor<2xf32>
// CHECK-NEXT: [[PRODUCT:%.*]] = stablehlo.multiply [[WIDE]], [[NUMBER]] : tensor<2xf32>
// CHECK-NEXT: stablehlo.convert [[PRODUCT]] : (tensor<2xf32>) -> tensor<2xbf16>
vllm_ir.func functional @main(%x: tensor<2xbf16>) -> tensor<2xbf16> {
  %y = torch.call @aten.mul.Tensor(%x, 1.000000e-01) : (tensor<2xbf16>) -> tensor<2xbf16>
  vllm_ir.return (%y) : tensor<2xbf16>
}

// -----

// High-level operations are converted through their native definition; layouts are no part of values.
// CHECK: func.func public @main(%x: tensor<2x8xf32>, %w: tensor<8xf32>) -> tensor<2x8xf32> {
// CHECK-NOT: vllm_ir
// CHECK: stablehlo.rsqrt
vllm_ir.func functional @main(%x: tensor<2x8xf32, #vllm_ir.layout<strides = [1, 2]>>, %w: tensor<8xf32>) -> tensor<2x8xf32> {
  %y = vllm_ir.rms_norm %x : tensor<2x8xf32, #vllm_ir.layout<strides = [1, 2]>> weight %w : tensor<8xf32> {epsilon = 1.0e-05 : f64} -> tensor<2x8xf32>
  vllm_ir.return (%y) : tensor<2x8xf32>
}
