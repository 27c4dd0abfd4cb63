// RUN: vllm-ir-opt %s -p convert-to-stablehlo --split-input-file | filecheck %s

// A row for each index, and one row by a slice.
vllm_ir.func functional @main(%cache: tensor<6x8xf32>, %slots: tensor<3xi64>, %new: tensor<3x8xf32>, %one: tensor<1xi64>) -> (tensor<1x8xf32>, tensor<6x8xf32> {vllm_ir.aliases = 0 : i64}) attributes {vllm_ir.original_output_count = 1 : i64} {
  %0 = torch.call @aten.index_put.default(%cache, [%slots], %new, false) : (tensor<6x8xf32>, tensor<3xi64>, tensor<3x8xf32>) -> tensor<6x8xf32>
  %1 = torch.call @aten.index_select.default(%0, 0, %one) : (tensor<6x8xf32>, tensor<1xi64>) -> tensor<1x8xf32>
  vllm_ir.return (%1, %0) : tensor<1x8xf32>, tensor<6x8xf32>
}
// CHECK: func.func public @main(%cache: tensor<6x8xf32> {tf.aliasing_output = 1 : i32}, %slots: tensor<3xi64>
// CHECK-NEXT: [[narrow:%.*]] = stablehlo.convert %slots : (tensor<3xi64>) -> tensor<3xi32>
// CHECK: stablehlo.compare LT, [[narrow]]
// CHECK: [[index:%.*]] = stablehlo.select
// CHECK-NEXT: "stablehlo.scatter"(%cache, [[index]], %new)
// CHECK-SAME: update_window_dims = [1]
// CHECK-SAME: inserted_window_dims = [0]
// CHECK-NEXT: ^{{.*}}(%{{.*}}: tensor<f32>, [[update:%.*]]: tensor<f32>):
// CHECK-NEXT: stablehlo.return [[update]]
// CHECK: stablehlo.dynamic_slice {{.*}}sizes = [1, 8]
// CHECK-NOT: stablehlo.gather

// -----

// A mask writes where it is true.
vllm_ir.func functional @main(%x: tensor<3x4xf32>, %mask: tensor<3xi1>, %value: tensor<f32>) -> tensor<3x4xf32> {
  %0 = torch.call @aten.index_put.default(%x, [%mask], %value, false) : (tensor<3x4xf32>, tensor<3xi1>, tensor<f32>) -> tensor<3x4xf32>
  vllm_ir.return (%0) : tensor<3x4xf32>
}
// CHECK: func.func public @main(%x: tensor<3x4xf32>
// CHECK: [[everywhere:%.*]] = stablehlo.broadcast_in_dim %mask, dims = [0]
// CHECK-NEXT: stablehlo.select [[everywhere]], %{{.*}}, %x
// CHECK-NOT: stablehlo.scatter

// -----

// Places of the largest elements are computed where they are used, and only there.
vllm_ir.func functional @main(%x: tensor<1x4x4xf32>) -> tensor<1x2x2xf32> {
  %0, %1 = torch.call @aten.max_pool2d_with_indices.default(%x, [2, 2], [], [0, 0], [1, 1], false) : (tensor<1x4x4xf32>) -> (tensor<1x2x2xf32>, tensor<1x2x2xi64>)
  vllm_ir.return (%0) : tensor<1x2x2xf32>
}
// CHECK: func.func public @main(%x: tensor<1x4x4xf32>)
// CHECK: "stablehlo.reduce_window"(%x
// CHECK-NOT: stablehlo.slice
