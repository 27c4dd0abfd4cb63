// RUN: vllm-ir-opt %s --split-input-file --verify-diagnostics | filecheck %s

// CHECK: start_indices has 1 entries for 2 dimensions
func.func public @main(%v: tensor<4x4xf32>) {
  %0 = "stablehlo.slice"(%v) <{start_indices = array<i64: 0>, limit_indices = array<i64: 1>, strides = array<i64: 1>}> : (tensor<4x4xf32>) -> tensor<1x4xf32>
  func.return
}

// -----

// CHECK: the slice 2:5:1 is not one of dimension 0, which has 4 elements
func.func public @main(%v: tensor<4xf32>) {
  %0 = stablehlo.slice %v [2:5] : (tensor<4xf32>) -> tensor<3xf32>
  func.return
}

// -----

// CHECK: the slice 0:4:0 is not one of dimension 0, which has 4 elements
func.func public @main(%v: tensor<4xf32>) {
  %0 = stablehlo.slice %v [0:4:0] : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: result has shape 4, expected 2
func.func public @main(%v: tensor<4xf32>) {
  %0 = stablehlo.slice %v [0:4:2] : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: slice_sizes has 5 in dimension 0, the operand 4
func.func public @main(%v: tensor<4xf32>, %i: tensor<i32>) {
  %0 = "stablehlo.dynamic_slice"(%v, %i) <{slice_sizes = array<i64: 5>}> : (tensor<4xf32>, tensor<i32>) -> tensor<5xf32>
  func.return
}

// -----

// CHECK: start_indices has 0 entries for 1 dimensions
func.func public @main(%v: tensor<4xf32>) {
  %0 = "stablehlo.dynamic_slice"(%v) <{slice_sizes = array<i64: 2>}> : (tensor<4xf32>) -> tensor<2xf32>
  func.return
}

// -----

// CHECK: the slice has 2 elements in dimension 0, which goes
func.func public @main(%v: tensor<4x8xf32>, %i: tensor<3xi32>) {
  %0 = "stablehlo.gather"(%v, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 2, 8>}> : (tensor<4x8xf32>, tensor<3xi32>) -> tensor<3x8xf32>
  func.return
}

// -----

// CHECK: offset_dims has 0 entries for 1 dimensions
func.func public @main(%v: tensor<4x8xf32>, %i: tensor<3xi32>) {
  %0 = "stablehlo.gather"(%v, %i) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 8>}> : (tensor<4x8xf32>, tensor<3xi32>) -> tensor<3x8xf32>
  func.return
}

// -----

// CHECK: result has shape 3x4, expected 3x8
func.func public @main(%v: tensor<4x8xf32>, %i: tensor<3xi32>) {
  %0 = "stablehlo.gather"(%v, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 8>}> : (tensor<4x8xf32>, tensor<3xi32>) -> tensor<3x4xf32>
  func.return
}

// -----

// CHECK: start_index_map names 2 dimensions, the index vectors have 1 entries
func.func public @main(%v: tensor<4x8xf32>, %i: tensor<3xi32>) {
  %0 = "stablehlo.gather"(%v, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0, 1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 8>}> : (tensor<4x8xf32>, tensor<3xi32>) -> tensor<3x8xf32>
  func.return
}

// -----

// CHECK: collapsed_slice_dims and operand_batching_dims name a dimension twice: [0, 0]
func.func public @main(%v: tensor<4x8xf32>, %i: tensor<3xi32>) {
  %0 = "stablehlo.gather"(%v, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 8>}> : (tensor<4x8xf32>, tensor<3xi32>) -> tensor<3x8xf32>
  func.return
}

// -----

// CHECK: index_vector_dim is 2, the indices have 1 dimensions
func.func public @main(%v: tensor<4x8xf32>, %i: tensor<3xi32>) {
  %0 = "stablehlo.gather"(%v, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, slice_sizes = array<i64: 1, 8>}> : (tensor<4x8xf32>, tensor<3xi32>) -> tensor<3x8xf32>
  func.return
}

// -----

// CHECK: offset_dims is [2, 1], which is not in order
func.func public @main(%v: tensor<4x8xf32>, %i: tensor<3xi32>) {
  %0 = "stablehlo.gather"(%v, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [2, 1], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 8>}> : (tensor<4x8xf32>, tensor<3xi32>) -> tensor<3x1x8xf32>
  func.return
}

// -----

// CHECK: the batching dimensions of the indices has 0 entries for 1 dimensions
func.func public @main(%v: tensor<4x8xf32>, %i: tensor<4xi32>) {
  %0 = "stablehlo.gather"(%v, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], operand_batching_dims = [0], start_index_map = [1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 8>}> : (tensor<4x8xf32>, tensor<4xi32>) -> tensor<4x8xf32>
  func.return
}

// -----

// CHECK: update_window_dims has 1 entries for 2 dimensions
func.func public @main(%v: tensor<4x8xf32>, %i: tensor<3xi32>, %u: tensor<3x8xf32>) {
  %0 = "stablehlo.scatter"(%v, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    stablehlo.return %y : tensor<f32>
  }) : (tensor<4x8xf32>, tensor<3xi32>, tensor<3x8xf32>) -> tensor<4x8xf32>
  func.return
}

// -----

// CHECK: the window of update 0 has 9 in dimension 0, the operand 8
func.func public @main(%v: tensor<4x8xf32>, %i: tensor<3xi32>, %u: tensor<3x9xf32>) {
  %0 = "stablehlo.scatter"(%v, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    stablehlo.return %y : tensor<f32>
  }) : (tensor<4x8xf32>, tensor<3xi32>, tensor<3x9xf32>) -> tensor<4x8xf32>
  func.return
}

// -----

// CHECK: dimension 2 holds a part of a slice, but there are 2 in all
func.func public @main(%v: tensor<4x8xf32>, %i: tensor<3xi32>, %u: tensor<3x1x8xf32>) {
  %0 = "stablehlo.scatter"(%v, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [2], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    stablehlo.return %y : tensor<f32>
  }) : (tensor<4x8xf32>, tensor<3xi32>, tensor<3x1x8xf32>) -> tensor<4x8xf32>
  func.return
}

// -----

// CHECK: update 0 has shape 2x8, expected 3x8
func.func public @main(%v: tensor<4x8xf32>, %i: tensor<3xi32>, %u: tensor<2x8xf32>) {
  %0 = "stablehlo.scatter"(%v, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    stablehlo.return %y : tensor<f32>
  }) : (tensor<4x8xf32>, tensor<3xi32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  func.return
}
