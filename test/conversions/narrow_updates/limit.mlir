// RUN: vllm-ir-opt %s -p 'narrow-updates{limit=8}' | filecheck %s

// The first write through views is one update, which takes six rewrites with the end of the block. Of the second one
// the slice is a part of the tensor, and all behind it is as it was.
// CHECK: [[first:%.*]] = "stablehlo.dynamic_update_slice"(%cache, {{.*}} -> tensor<4x2x8xf32>
// CHECK: [[part:%.*]] = stablehlo.slice [[first]] [1:2, 0:2, 0:8] : (tensor<4x2x8xf32>) -> tensor<1x2x8xf32>
// CHECK: [[new:%.*]] = "stablehlo.dynamic_update_slice"({{.*}} -> tensor<2x8xf32>
// CHECK: [[piece:%.*]] = stablehlo.reshape [[new]] : (tensor<2x8xf32>) -> tensor<1x2x8xf32>
// CHECK: "stablehlo.dynamic_update_slice"([[first]], [[piece]], {{.*}} -> tensor<4x2x8xf32>

func.func public @main(%cache: tensor<4x2x8xf32>, %row: tensor<1x8xf32>) -> tensor<4x2x8xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %0 = stablehlo.slice %cache [3:4, 0:2, 0:8] : (tensor<4x2x8xf32>) -> tensor<1x2x8xf32>
  %1 = stablehlo.reshape %0 : (tensor<1x2x8xf32>) -> tensor<2x8xf32>
  %2 = "stablehlo.dynamic_update_slice"(%1, %row, %one, %zero) : (tensor<2x8xf32>, tensor<1x8xf32>, tensor<i32>, tensor<i32>) -> tensor<2x8xf32>
  %3 = stablehlo.reshape %2 : (tensor<2x8xf32>) -> tensor<1x2x8xf32>
  %4 = "stablehlo.dynamic_update_slice"(%cache, %3, %three, %zero, %zero) : (tensor<4x2x8xf32>, tensor<1x2x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x2x8xf32>
  %5 = stablehlo.slice %4 [1:2, 0:2, 0:8] : (tensor<4x2x8xf32>) -> tensor<1x2x8xf32>
  %6 = stablehlo.reshape %5 : (tensor<1x2x8xf32>) -> tensor<2x8xf32>
  %7 = "stablehlo.dynamic_update_slice"(%6, %row, %one, %zero) : (tensor<2x8xf32>, tensor<1x8xf32>, tensor<i32>, tensor<i32>) -> tensor<2x8xf32>
  %8 = stablehlo.reshape %7 : (tensor<2x8xf32>) -> tensor<1x2x8xf32>
  %9 = "stablehlo.dynamic_update_slice"(%4, %8, %one, %zero, %zero) : (tensor<4x2x8xf32>, tensor<1x2x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x2x8xf32>
  func.return %9 : tensor<4x2x8xf32>
}
