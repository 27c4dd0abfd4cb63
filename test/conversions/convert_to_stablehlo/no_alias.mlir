// RUN: vllm-ir-opt %s -p "convert-to-stablehlo{alias=none}" | filecheck %s

// CHECK-NOT: tf.aliasing_output
// CHECK: func.func public @main(%x: tensor<2xf32>) -> (tensor<2xf32> {vllm_ir.aliases = 0 : i64})
vllm_ir.func functional @main(%x: tensor<2xf32>) -> (tensor<2xf32> {vllm_ir.aliases = 0 : i64}) attributes {vllm_ir.original_output_count = 0 : i64} {
  %y = torch.call @aten.neg.default(%x) : (tensor<2xf32>) -> tensor<2xf32>
  vllm_ir.return (%y) : tensor<2xf32>
}
