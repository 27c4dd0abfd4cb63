// RUN: vllm-ir-opt %s | vllm-ir-opt | filecheck %s

func.func public @main(%a: tensor<1x3x8x8xf32>, %w: tensor<4x3x2x2xf32>, %v: tensor<4xf32>, %i: tensor<i32>) {
  // CHECK: "stablehlo.convolution"(%a, %w) <{{.*}}dimension_numbers = #stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>
  %0 = "stablehlo.convolution"(%a, %w) <{batch_group_count = 1 : i64, dimension_numbers = #stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>, feature_group_count = 1 : i64, padding = dense<0> : tensor<2x2xi64>, window_strides = array<i64: 1, 1>}> : (tensor<1x3x8x8xf32>, tensor<4x3x2x2xf32>) -> tensor<1x4x7x7xf32>
  // CHECK: "stablehlo.all_reduce"(%v) <{{.*}}channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>
  %1 = "stablehlo.all_reduce"(%v) <{replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>, use_global_device_ids}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: "stablehlo.all_gather"
  %2 = "stablehlo.all_gather"(%v) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>}> : (tensor<4xf32>) -> tensor<8xf32>
  // CHECK: "stablehlo.reduce_scatter"
  %3 = "stablehlo.reduce_scatter"(%v) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<4xf32>) -> tensor<2xf32>
  // CHECK: "stablehlo.all_to_all"
  %4 = "stablehlo.all_to_all"(%v) <{split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>}> : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: "stablehlo.collective_permute"
  %5 = "stablehlo.collective_permute"(%v) <{source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}> : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: "stablehlo.collective_broadcast"
  %6 = "stablehlo.collective_broadcast"(%v) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: "stablehlo.replica_id"() : () -> tensor<ui32>
  %7 = "stablehlo.replica_id"() : () -> tensor<ui32>
  // CHECK: "stablehlo.dynamic_update_slice"
  %8 = "stablehlo.dynamic_update_slice"(%v, %3, %i) : (tensor<4xf32>, tensor<2xf32>, tensor<i32>) -> tensor<4xf32>
  // CHECK: "stablehlo.reverse"(%v) <{dimensions = array<i64: 0>}>
  %9 = "stablehlo.reverse"(%v) <{dimensions = array<i64: 0>}> : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: "stablehlo.sort"
  %10 = "stablehlo.sort"(%v) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = stablehlo.compare LT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %s : tensor<i1>
  }) : (tensor<4xf32>) -> tensor<4xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  // CHECK: "stablehlo.reduce_window"
  %11 = "stablehlo.reduce_window"(%v, %zero) <{window_dimensions = array<i64: 2>, window_strides = array<i64: 2>, padding = dense<[[1, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %s = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<4xf32>, tensor<f32>) -> tensor<3xf32>
  // CHECK: "stablehlo.pad"
  %12 = "stablehlo.pad"(%v, %zero) <{edge_padding_low = array<i64: 1>, edge_padding_high = array<i64: -2>, interior_padding = array<i64: 1>}> : (tensor<4xf32>, tensor<f32>) -> tensor<6xf32>
  // CHECK: "stablehlo.while"
  %13 = "stablehlo.while"(%i) ({
  ^bb0(%x: tensor<i32>):
    %s = stablehlo.compare LT, %x, %x : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %s : tensor<i1>
  }, {
  ^bb0(%x: tensor<i32>):
    stablehlo.return %x : tensor<i32>
  }) : (tensor<i32>) -> tensor<i32>
  func.return
}
