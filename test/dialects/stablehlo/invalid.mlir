// RUN: vllm-ir-opt %s --split-input-file --verify-diagnostics | filecheck %s

// CHECK: update has 5 elements in dimension 0, the operand 4
func.func public @main(%v: tensor<4xf32>, %u: tensor<5xf32>, %i: tensor<i32>) {
  %0 = "stablehlo.dynamic_update_slice"(%v, %u, %i) : (tensor<4xf32>, tensor<5xf32>, tensor<i32>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: start_indices has 0 entries for 1 dimensions
func.func public @main(%v: tensor<4xf32>) {
  %0 = "stablehlo.dynamic_update_slice"(%v, %v) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: dimensions names 0 twice
func.func public @main(%v: tensor<4xf32>) {
  %0 = "stablehlo.reverse"(%v) <{dimensions = array<i64: 0, 0>}> : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: the comparator returns (tensor<f32>), expected (tensor<i1>)
func.func public @main(%v: tensor<4xf32>) {
  %0 = "stablehlo.sort"(%v) <{dimension = 0 : i64}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    stablehlo.return %x : tensor<f32>
  }) : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: replica_groups names process 1 twice
func.func public @main(%v: tensor<4xf32>) {
  %0 = "stablehlo.all_gather"(%v) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1], [1, 3]]> : tensor<2x2xi64>}> : (tensor<4xf32>) -> tensor<8xf32>
  func.return
}

// -----

// CHECK: output 0 has shape 4, expected 8
func.func public @main(%v: tensor<4xf32>) {
  %0 = "stablehlo.all_gather"(%v) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: padding_value has element type i32, operand f32
func.func public @main(%v: tensor<4xf32>, %i: tensor<i32>) {
  %0 = "stablehlo.pad"(%v, %i) <{edge_padding_low = array<i64: 0>, edge_padding_high = array<i64: 0>, interior_padding = array<i64: 0>}> : (tensor<4xf32>, tensor<i32>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: lhs has 3 features, rhs takes 2 in each of 1 groups
func.func public @main(%a: tensor<1x3x8xf32>, %w: tensor<4x2x2xf32>) {
  %0 = "stablehlo.convolution"(%a, %w) <{batch_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[b, f, 0]x[o, i, 0]->[b, f, 0]>, feature_group_count = 1 : i64}> : (tensor<1x3x8xf32>, tensor<4x2x2xf32>) -> tensor<1x4x7xf32>
  func.return
}

// -----

// CHECK: cond returns (tensor<i32>), expected tensor<i1>
func.func public @main(%i: tensor<i32>) {
  %0 = "stablehlo.while"(%i) ({
  ^bb0(%x: tensor<i32>):
    stablehlo.return %x : tensor<i32>
  }, {
  ^bb0(%x: tensor<i32>):
    stablehlo.return %x : tensor<i32>
  }) : (tensor<i32>) -> tensor<i32>
  func.return
}
