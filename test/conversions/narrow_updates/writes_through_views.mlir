// RUN: vllm-ir-opt %s -p convert-to-stablehlo,narrow-updates --split-input-file | filecheck %s

// A row of a layer is written into the stack of layers, and the layer is read from there.

// CHECK:      func.func public @main(%cache: tensor<4x8x2xf32> {tf.aliasing_output = 1 : i32},
// CHECK-NOT:  stablehlo.slice
// CHECK:      "stablehlo.scatter"(%cache,
// CHECK-SAME: inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1]
// CHECK:      (tensor<4x8x2xf32>, tensor<3x2xi32>, tensor<3x2xf32>) -> tensor<4x8x2xf32>
// CHECK-NEXT: stablehlo.slice
// CHECK-SAME: [2:3, 0:8, 0:2]
// CHECK-NOT:  dynamic_update_slice
// CHECK:      func.return
vllm_ir.func functional @main(%cache: tensor<4x8x2xf32>, %slots: tensor<3xi64>, %rows: tensor<3x2xf32>) -> (tensor<8x2xf32>, tensor<4x8x2xf32> {vllm_ir.aliases = 0 : i64}) attributes {vllm_ir.original_output_count = 1 : i64} {
  %layer = torch.call @aten.select.int(%cache, 0, 2) : (tensor<4x8x2xf32>) -> tensor<8x2xf32>
  %changed = torch.call @aten.index_put.default(%layer, [%slots], %rows, false) : (tensor<8x2xf32>, tensor<3xi64>, tensor<3x2xf32>) -> tensor<8x2xf32>
  %new = torch.call @aten.select_scatter.default(%cache, %changed, 0, 2) : (tensor<4x8x2xf32>, tensor<8x2xf32>) -> tensor<4x8x2xf32>
  %read = torch.call @aten.neg.default(%changed) : (tensor<8x2xf32>) -> tensor<8x2xf32>
  vllm_ir.return (%read, %new) : tensor<8x2xf32>, tensor<4x8x2xf32>
}

// -----

// What is put back elsewhere than where it is from is a copy, and stays one.

// CHECK:      func.func public @main
// CHECK:      stablehlo.slice
// CHECK-SAME: [2:3, 0:8, 0:2]
// CHECK:      "stablehlo.scatter"
// CHECK:      (tensor<8x2xf32>, tensor<3xi32>, tensor<3x2xf32>) -> tensor<8x2xf32>
// CHECK:      dynamic_update_slice
vllm_ir.func functional @main(%cache: tensor<4x8x2xf32>, %slots: tensor<3xi64>, %rows: tensor<3x2xf32>) -> (tensor<4x8x2xf32> {vllm_ir.aliases = 0 : i64}) attributes {vllm_ir.original_output_count = 0 : i64} {
  %layer = torch.call @aten.select.int(%cache, 0, 2) : (tensor<4x8x2xf32>) -> tensor<8x2xf32>
  %changed = torch.call @aten.index_put.default(%layer, [%slots], %rows, false) : (tensor<8x2xf32>, tensor<3xi64>, tensor<3x2xf32>) -> tensor<8x2xf32>
  %new = torch.call @aten.select_scatter.default(%cache, %changed, 0, 1) : (tensor<4x8x2xf32>, tensor<8x2xf32>) -> tensor<4x8x2xf32>
  vllm_ir.return (%new) : tensor<4x8x2xf32>
}
