// RUN: vllm-ir-opt %s -p narrow-updates --split-input-file | filecheck %s

// A row of a part of a part: one update of the tensor. The part is read from the result.
func.func public @main(%cache: tensor<4x2x8xf32>, %row: tensor<1x8xf32>) -> (tensor<2x8xf32>, tensor<4x2x8xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %0 = stablehlo.slice %cache [3:4, 0:2, 0:8] : (tensor<4x2x8xf32>) -> tensor<1x2x8xf32>
  %1 = stablehlo.reshape %0 : (tensor<1x2x8xf32>) -> tensor<2x8xf32>
  %2 = "stablehlo.dynamic_update_slice"(%1, %row, %one, %zero) : (tensor<2x8xf32>, tensor<1x8xf32>, tensor<i32>, tensor<i32>) -> tensor<2x8xf32>
  %3 = stablehlo.reshape %2 : (tensor<2x8xf32>) -> tensor<1x2x8xf32>
  %4 = "stablehlo.dynamic_update_slice"(%cache, %3, %three, %zero, %zero) : (tensor<4x2x8xf32>, tensor<1x2x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x2x8xf32>
  func.return %2, %4 : tensor<2x8xf32>, tensor<4x2x8xf32>
}
// CHECK: func.func public @main(%cache
// CHECK: [[row:%.*]] = stablehlo.reshape %row : (tensor<1x8xf32>) -> tensor<1x1x8xf32>
// CHECK: [[new:%.*]] = "stablehlo.dynamic_update_slice"(%cache, [[row]], %{{.*}}) : (tensor<4x2x8xf32>, tensor<1x1x8xf32>, {{.*}} -> tensor<4x2x8xf32>
// CHECK-NEXT: [[slice:%.*]] = stablehlo.slice [[new]] [3:4, 0:2, 0:8]
// CHECK-NEXT: [[part:%.*]] = stablehlo.reshape [[slice]]
// CHECK-NEXT: func.return [[part]], [[new]]

// -----

// Rows by index in a part with two dimensions joined: the place of the part, and the index taken apart.
func.func public @main(%cache: tensor<4x2x3x8xf32>, %at: tensor<2xi32>, %rows: tensor<2x8xf32>) -> tensor<4x2x3x8xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %0 = stablehlo.slice %cache [2:3, 0:2, 0:3, 0:8] : (tensor<4x2x3x8xf32>) -> tensor<1x2x3x8xf32>
  %1 = stablehlo.reshape %0 : (tensor<1x2x3x8xf32>) -> tensor<6x8xf32>
  %2 = "stablehlo.scatter"(%1, %at, %rows) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false}> ({
  ^bb0(%old: tensor<f32>, %new: tensor<f32>):
    stablehlo.return %new : tensor<f32>
  }) : (tensor<6x8xf32>, tensor<2xi32>, tensor<2x8xf32>) -> tensor<6x8xf32>
  %3 = stablehlo.reshape %2 : (tensor<6x8xf32>) -> tensor<1x2x3x8xf32>
  %4 = "stablehlo.dynamic_update_slice"(%cache, %3, %two, %zero, %zero, %zero) : (tensor<4x2x3x8xf32>, tensor<1x2x3x8xf32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<4x2x3x8xf32>
  func.return %4 : tensor<4x2x3x8xf32>
}
// CHECK: func.func public @main(%cache
// CHECK: [[outer:%.*]] = stablehlo.divide
// CHECK-NEXT: [[inner:%.*]] = stablehlo.remainder
// CHECK-NEXT: stablehlo.concatenate [[outer]], [[inner]], dim = 1
// CHECK: [[layer:%.*]] = stablehlo.constant dense<2> : tensor<2x1xi32>
// CHECK-NEXT: [[places:%.*]] = stablehlo.concatenate [[layer]], %{{.*}}, dim = 1 : (tensor<2x1xi32>, tensor<2x2xi32>) -> tensor<2x3xi32>
// CHECK-NEXT: [[new:%.*]] = "stablehlo.scatter"(%cache, [[places]], %rows) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0, 1, 2], scatter_dims_to_operand_dims = [0, 1, 2], index_vector_dim = 1>
// CHECK: func.return [[new]] : tensor<4x2x3x8xf32>

// -----

// Where a part ends before the tensor does, an index out of its range must not reach what is beside it.
func.func public @main(%cache: tensor<9x8xf32>, %at: tensor<2xi32>, %rows: tensor<2x8xf32>) -> (tensor<2x8xf32>, tensor<9x8xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %0 = stablehlo.slice %cache [2:6, 0:8] : (tensor<9x8xf32>) -> tensor<4x8xf32>
  %1 = "stablehlo.scatter"(%0, %at, %rows) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false}> ({
  ^bb0(%old: tensor<f32>, %new: tensor<f32>):
    stablehlo.return %new : tensor<f32>
  }) : (tensor<4x8xf32>, tensor<2xi32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %2 = "stablehlo.dynamic_update_slice"(%cache, %1, %two, %zero) : (tensor<9x8xf32>, tensor<4x8xf32>, tensor<i32>, tensor<i32>) -> tensor<9x8xf32>
  %3 = stablehlo.slice %2 [2:6, 0:8] : (tensor<9x8xf32>) -> tensor<4x8xf32>
  %4 = "stablehlo.gather"(%3, %at) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 8>, indices_are_sorted = false}> : (tensor<4x8xf32>, tensor<2xi32>) -> tensor<2x8xf32>
  func.return %4, %2 : tensor<2x8xf32>, tensor<9x8xf32>
}
// CHECK: func.func public @main(%cache
// CHECK: stablehlo.compare GE
// CHECK: [[last:%.*]] = stablehlo.constant dense<3>
// CHECK-NEXT: stablehlo.compare LE, %{{.*}}, [[last]]
// CHECK: [[outside:%.*]] = stablehlo.constant dense<9>
// CHECK-NEXT: [[places:%.*]] = stablehlo.select %{{.*}}, %{{.*}}, [[outside]]
// CHECK-NEXT: [[new:%.*]] = "stablehlo.scatter"(%cache, [[places]], %rows)
// CHECK: [[clamped:%.*]] = stablehlo.clamp
// CHECK-NEXT: [[moved:%.*]] = stablehlo.add [[clamped]], %{{.*}}
// CHECK-NEXT: "stablehlo.gather"([[new]], [[moved]])

// -----

// A read of what a later update leaves alone comes from the newest version, a read of what it changes from before.
func.func public @main(%cache: tensor<4x8xf32>, %row: tensor<1x8xf32>) -> (tensor<1x8xf32>, tensor<1x8xf32>, tensor<4x8xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0 = stablehlo.slice %cache [0:1, 0:8] : (tensor<4x8xf32>) -> tensor<1x8xf32>
  %1 = stablehlo.slice %cache [1:2, 0:8] : (tensor<4x8xf32>) -> tensor<1x8xf32>
  %2 = "stablehlo.dynamic_update_slice"(%cache, %row, %one, %zero) : (tensor<4x8xf32>, tensor<1x8xf32>, tensor<i32>, tensor<i32>) -> tensor<4x8xf32>
  func.return %0, %1, %2 : tensor<1x8xf32>, tensor<1x8xf32>, tensor<4x8xf32>
}
// CHECK: [[new:%.*]] = "stablehlo.dynamic_update_slice"(%cache
// CHECK-NEXT: [[later:%.*]] = stablehlo.slice [[new]] [0:1, 0:8]
// CHECK-NEXT: [[old:%.*]] = stablehlo.slice %cache [1:2, 0:8]
// CHECK-NEXT: func.return [[later]], [[old]], [[new]]

// -----

// What an update depends on is read before it; a start that is not known may be anywhere in its dimension only.
func.func public @main(%cache: tensor<4x8xf32>, %at: tensor<i32>) -> (tensor<1x2xf32>, tensor<1x8xf32>, tensor<4x8xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0 = stablehlo.slice %cache [0:1, 0:8] : (tensor<4x8xf32>) -> tensor<1x8xf32>
  %1 = stablehlo.slice %cache [1:2, 0:2] : (tensor<4x8xf32>) -> tensor<1x2xf32>
  %2 = stablehlo.slice %0 [0:1, 2:4] : (tensor<1x8xf32>) -> tensor<1x2xf32>
  %3 = "stablehlo.dynamic_update_slice"(%cache, %2, %one, %at) : (tensor<4x8xf32>, tensor<1x2xf32>, tensor<i32>, tensor<i32>) -> tensor<4x8xf32>
  %4 = stablehlo.slice %cache [2:3, 0:8] : (tensor<4x8xf32>) -> tensor<1x8xf32>
  func.return %1, %4, %3 : tensor<1x2xf32>, tensor<1x8xf32>, tensor<4x8xf32>
}
// CHECK: [[old:%.*]] = stablehlo.slice %cache [1:2, 0:2]
// CHECK-NEXT: [[source:%.*]] = stablehlo.slice %cache [0:1, 2:4]
// CHECK-NEXT: [[new:%.*]] = "stablehlo.dynamic_update_slice"(%cache, [[source]]
// CHECK-NEXT: [[later:%.*]] = stablehlo.slice [[new]] [2:3, 0:8]
// CHECK-NEXT: func.return [[old]], [[later]], [[new]]

// -----

// A part that goes to another place, and one that is put back over a newer update of it, are updates of their own.
func.func public @main(%cache: tensor<4x2xf32>, %one: tensor<1xf32>) -> (tensor<4x2xf32>, tensor<4x2xf32>) {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %0 = stablehlo.slice %cache [0:1, 0:2] : (tensor<4x2xf32>) -> tensor<1x2xf32>
  %1 = stablehlo.reshape %one : (tensor<1xf32>) -> tensor<1x1xf32>
  %2 = "stablehlo.dynamic_update_slice"(%0, %1, %c0, %c1) : (tensor<1x2xf32>, tensor<1x1xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
  %3 = "stablehlo.dynamic_update_slice"(%cache, %2, %c1, %c0) : (tensor<4x2xf32>, tensor<1x2xf32>, tensor<i32>, tensor<i32>) -> tensor<4x2xf32>
  %4 = "stablehlo.dynamic_update_slice"(%cache, %1, %c0, %c0) : (tensor<4x2xf32>, tensor<1x1xf32>, tensor<i32>, tensor<i32>) -> tensor<4x2xf32>
  %5 = "stablehlo.dynamic_update_slice"(%4, %2, %c0, %c0) : (tensor<4x2xf32>, tensor<1x2xf32>, tensor<i32>, tensor<i32>) -> tensor<4x2xf32>
  func.return %3, %5 : tensor<4x2xf32>, tensor<4x2xf32>
}
// CHECK: [[part:%.*]] = "stablehlo.dynamic_update_slice"(%{{.*}}) : (tensor<1x2xf32>, tensor<1x1xf32>
// CHECK: [[moved:%.*]] = "stablehlo.dynamic_update_slice"(%cache, [[part]], {{.*}} : (tensor<4x2xf32>, tensor<1x2xf32>
// CHECK: [[newer:%.*]] = "stablehlo.dynamic_update_slice"(%cache, %{{.*}} : (tensor<4x2xf32>, tensor<1x1xf32>
// CHECK: [[back:%.*]] = "stablehlo.dynamic_update_slice"([[newer]], [[part]], {{.*}} : (tensor<4x2xf32>, tensor<1x2xf32>
// CHECK: func.return [[moved]], [[back]]

// -----

// A slice with steps is no part that could be updated in place, and stays as it is.
func.func public @main(%x: tensor<8xf32>, %new: tensor<1xf32>) -> (tensor<4xf32>, tensor<8xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0 = stablehlo.slice %x [0:8:2] : (tensor<8xf32>) -> tensor<4xf32>
  %1 = "stablehlo.dynamic_update_slice"(%0, %new, %zero) : (tensor<4xf32>, tensor<1xf32>, tensor<i32>) -> tensor<4xf32>
  %2 = "stablehlo.dynamic_update_slice"(%x, %1, %zero) : (tensor<8xf32>, tensor<4xf32>, tensor<i32>) -> tensor<8xf32>
  func.return %1, %2 : tensor<4xf32>, tensor<8xf32>
}
// CHECK: [[steps:%.*]] = stablehlo.slice %x [0:8:2]
// CHECK-NEXT: [[part:%.*]] = "stablehlo.dynamic_update_slice"([[steps]], %new
// CHECK-NEXT: "stablehlo.dynamic_update_slice"(%x, [[part]]

// -----

// Putting back a part that an update did not touch does not bring the update with it.
func.func public @main(%cache: tensor<4x2xf32>, %row: tensor<1x2xf32>) -> tensor<4x2xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %0 = stablehlo.slice %cache [0:2, 0:2] : (tensor<4x2xf32>) -> tensor<2x2xf32>
  %1 = "stablehlo.dynamic_update_slice"(%0, %row, %c1, %c0) : (tensor<2x2xf32>, tensor<1x2xf32>, tensor<i32>, tensor<i32>) -> tensor<2x2xf32>
  %2 = stablehlo.slice %1 [0:1, 0:2] : (tensor<2x2xf32>) -> tensor<1x2xf32>
  %3 = "stablehlo.dynamic_update_slice"(%cache, %2, %c0, %c0) : (tensor<4x2xf32>, tensor<1x2xf32>, tensor<i32>, tensor<i32>) -> tensor<4x2xf32>
  func.return %3 : tensor<4x2xf32>
}
// CHECK: func.func public @main(%cache: tensor<4x2xf32>, %row
// CHECK: [[changed:%.*]] = "stablehlo.dynamic_update_slice"(%{{.*}}, %row, {{.*}} -> tensor<2x2xf32>
// CHECK: [[kept:%.*]] = stablehlo.slice [[changed]] [0:1, 0:2]
// CHECK: [[new:%.*]] = "stablehlo.dynamic_update_slice"(%cache, [[kept]]
// CHECK-NEXT: func.return [[new]]
