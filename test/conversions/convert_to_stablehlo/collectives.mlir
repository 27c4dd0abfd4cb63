// RUN: vllm-ir-opt %s -p convert-to-stablehlo --split-input-file | filecheck %s

// Replica groups are those of the module; waiting is nothing.
builtin.module attributes {vllm_ir.replica_groups = {"1" = [array<i64: 0, 2>, array<i64: 1, 3>]}} {
  vllm_ir.func functional @main(%x: tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<2x3xf32>, tensor<8x3xf32>, tensor<4x3xf32>, tensor<4x3xf32>) {
    %0 = torch.call @_c10d_functional.all_reduce.default(%x, "avg", "1") : (tensor<4x3xf32>) -> tensor<4x3xf32>
    %1 = torch.call @_c10d_functional.wait_tensor.default(%0) external : (tensor<4x3xf32>) -> tensor<4x3xf32>
    %2 = torch.call @_c10d_functional.reduce_scatter_tensor.default(%x, "max", 2, "1") : (tensor<4x3xf32>) -> tensor<2x3xf32>
    %3 = torch.call @_c10d_functional.all_gather_into_tensor.default(%x, 2, "1") : (tensor<4x3xf32>) -> tensor<8x3xf32>
    %4 = torch.call @_c10d_functional.all_to_all_single.default(%x, [2, 2], [2, 2], "1") : (tensor<4x3xf32>) -> tensor<4x3xf32>
    %5 = torch.call @_c10d_functional.broadcast.default(%x, 1, "1") : (tensor<4x3xf32>) -> tensor<4x3xf32>
    vllm_ir.return (%1, %2, %3, %4, %5) : tensor<4x3xf32>, tensor<2x3xf32>, tensor<8x3xf32>, tensor<4x3xf32>, tensor<4x3xf32>
  }
}
// CHECK: func.func public @main(%x: tensor<4x3xf32>)
// CHECK: [[sum:%.*]] = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>}>
// CHECK: stablehlo.add
// CHECK: stablehlo.divide [[sum]]
// CHECK: "stablehlo.reduce_scatter"(%x)
// CHECK-SAME: scatter_dimension = 0
// CHECK: stablehlo.maximum
// CHECK: "stablehlo.all_gather"(%x)
// CHECK-SAME: all_gather_dim = 0
// CHECK: "stablehlo.all_to_all"(%x)
// CHECK-SAME: split_count = 2
// CHECK: "stablehlo.all_gather"(%x)
// CHECK-NEXT: stablehlo.slice {{.*}}[4:8, 0:3]
// CHECK-NOT: wait_tensor
