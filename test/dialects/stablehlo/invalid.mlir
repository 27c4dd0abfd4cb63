// RUN: vllm-ir-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s

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

// -----

// CHECK: 2 inputs and 1 outputs
func.func public @main(%v: tensor<4xf32>) {
  %0 = "stablehlo.all_gather"(%v, %v) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
  func.return
}

// -----

// CHECK: all_gather_dim is 1, the operand has 1 dimensions
func.func public @main(%v: tensor<4xf32>) {
  %0 = "stablehlo.all_gather"(%v) <{all_gather_dim = 1 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<4xf32>) -> tensor<8xf32>
  func.return
}

// -----

// CHECK: the computation takes (tensor<f32>), expected (tensor<f32>, tensor<f32>)
func.func public @main(%v: tensor<4xf32>) {
  %0 = "stablehlo.all_reduce"(%v) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<f32>):
    stablehlo.return %x : tensor<f32>
  }) : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: the computation ends in test.termop, not stablehlo.return
func.func public @main(%v: tensor<4xf32>) {
  %0 = "stablehlo.all_reduce"(%v) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    "test.termop"() : () -> ()
  }) : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: replica_groups has 1 dimensions, expected 2: a row for each group
func.func public @main(%v: tensor<4xf32>) {
  %0 = "stablehlo.collective_broadcast"(%v) <{replica_groups = dense<[0, 1]> : tensor<2xi64>}> : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: dimension 0 of size 4 has no 3 equal pieces
func.func public @main(%v: tensor<4xf32>) {
  %0 = "stablehlo.reduce_scatter"(%v) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    stablehlo.return %x : tensor<f32>
  }) : (tensor<4xf32>) -> tensor<2xf32>
  func.return
}

// -----

// CHECK: dimension 0 of size 4 has no 0 equal pieces
func.func public @main(%v: tensor<4xf32>) {
  %0 = "stablehlo.all_to_all"(%v) <{split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 0 : i64, replica_groups = dense<> : tensor<0x2xi64>}> : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: split_count is 4, a group has 2 processes
func.func public @main(%v: tensor<4xf32>) {
  %0 = "stablehlo.all_to_all"(%v) <{split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 4 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: source_target_pairs has shape [1, 3], expected rows of two processes
func.func public @main(%v: tensor<4xf32>) {
  %0 = "stablehlo.collective_permute"(%v) <{source_target_pairs = dense<[[0, 1, 2]]> : tensor<1x3xi64>}> : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: source_target_pairs names a target twice: (1, 1)
func.func public @main(%v: tensor<4xf32>) {
  %0 = "stablehlo.collective_permute"(%v) <{source_target_pairs = dense<[[0, 1], [2, 1]]> : tensor<2x2xi64>}> : (tensor<4xf32>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: input dimensions are ['b', 'b', '0'], expected each of ['0', 'b', 'f'] once
"test.op"() {a = #stablehlo.conv<[b, b, 0]x[o, i, 0]->[b, f, 0]>} : () -> ()

// -----

// CHECK: input, kernel and output have different numbers of dimensions
"test.op"() {a = #stablehlo.conv<[b, f, 0]x[o, i]->[b, f, 0]>} : () -> ()

// -----

// CHECK: lhs and rhs have 3 and 2 dimensions, dimension_numbers 3
func.func public @main(%a: tensor<1x3x8xf32>, %w: tensor<4x2xf32>) {
  %0 = "stablehlo.convolution"(%a, %w) <{batch_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[b, f, 0]x[o, i, 0]->[b, f, 0]>, feature_group_count = 1 : i64}> : (tensor<1x3x8xf32>, tensor<4x2xf32>) -> tensor<1x4x7xf32>
  func.return
}

// -----

// CHECK: window_strides has 2 entries for 1 dimensions
func.func public @main(%a: tensor<1x2x8xf32>, %w: tensor<4x2x2xf32>) {
  %0 = "stablehlo.convolution"(%a, %w) <{window_strides = array<i64: 1, 1>, batch_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[b, f, 0]x[o, i, 0]->[b, f, 0]>, feature_group_count = 1 : i64}> : (tensor<1x2x8xf32>, tensor<4x2x2xf32>) -> tensor<1x4x7xf32>
  func.return
}

// -----

// CHECK: window_strides has the entry 0, which is not positive
func.func public @main(%a: tensor<1x2x8xf32>, %w: tensor<4x2x2xf32>) {
  %0 = "stablehlo.convolution"(%a, %w) <{window_strides = array<i64: 0>, batch_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[b, f, 0]x[o, i, 0]->[b, f, 0]>, feature_group_count = 1 : i64}> : (tensor<1x2x8xf32>, tensor<4x2x2xf32>) -> tensor<1x4x7xf32>
  func.return
}

// -----

// CHECK: batch_group_count has the entry 0, which is not positive
func.func public @main(%a: tensor<1x2x8xf32>, %w: tensor<4x2x2xf32>) {
  %0 = "stablehlo.convolution"(%a, %w) <{batch_group_count = 0 : i64, dimension_numbers = #stablehlo.conv<[b, f, 0]x[o, i, 0]->[b, f, 0]>, feature_group_count = 1 : i64}> : (tensor<1x2x8xf32>, tensor<4x2x2xf32>) -> tensor<1x4x7xf32>
  func.return
}

// -----

// CHECK: padding has shape 2, expected rows of two
func.func public @main(%a: tensor<1x2x8xf32>, %w: tensor<4x2x2xf32>) {
  %0 = "stablehlo.convolution"(%a, %w) <{padding = dense<[0, 0]> : tensor<2xi64>, batch_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[b, f, 0]x[o, i, 0]->[b, f, 0]>, feature_group_count = 1 : i64}> : (tensor<1x2x8xf32>, tensor<4x2x2xf32>) -> tensor<1x4x7xf32>
  func.return
}

// -----

// CHECK: results have types (tensor<f32>), the operands (tensor<i32>)
func.func public @main(%i: tensor<i32>) {
  %0 = "stablehlo.while"(%i) ({
  ^bb0(%x: tensor<i32>):
    stablehlo.return %x : tensor<i32>
  }, {
  ^bb0(%x: tensor<i32>):
    stablehlo.return %x : tensor<i32>
  }) : (tensor<i32>) -> tensor<f32>
  func.return
}

// -----

// CHECK: interior_padding has the negative entry -1
func.func public @main(%v: tensor<4xf32>, %s: tensor<f32>) {
  %0 = "stablehlo.pad"(%v, %s) <{edge_padding_low = array<i64: 0>, edge_padding_high = array<i64: 0>, interior_padding = array<i64: -1>}> : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: start index 0 has element type f32, not an integer
func.func public @main(%v: tensor<4xf32>, %u: tensor<2xf32>, %i: tensor<f32>) {
  %0 = "stablehlo.dynamic_update_slice"(%v, %u, %i) : (tensor<4xf32>, tensor<2xf32>, tensor<f32>) -> tensor<4xf32>
  func.return
}

// -----

// CHECK: 1 inputs, 1 initial values, 2 outputs
func.func public @main(%v: tensor<4xf32>, %s: tensor<f32>) {
  %0, %1 = "stablehlo.reduce_window"(%v, %s) <{window_dimensions = array<i64: 2>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    stablehlo.return %x : tensor<f32>
  }) : (tensor<4xf32>, tensor<f32>) -> (tensor<3xf32>, tensor<3xf32>)
  func.return
}
