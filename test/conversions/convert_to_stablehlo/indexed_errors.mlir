// RUN: vllm-ir-opt %s -p convert-to-stablehlo --split-input-file --verify-diagnostics | filecheck %s

// CHECK: user.py:3: @aten.index.Tensor: result 0 has the dynamic shape u0
// CHECK-SAME: where
vllm_ir.func functional @main(%x: tensor<3x4xf32>, %mask: tensor<3x4xi1>) -> tensor<?xf32, #vllm_ir.layout<sizes = ["u0"]>> {
  %0 = torch.call @aten.index.Tensor(%x, [%mask]) : (tensor<3x4xf32>, tensor<3x4xi1>) -> tensor<?xf32, #vllm_ir.layout<sizes = ["u0"]>> loc("user.py":3:0)
  vllm_ir.return (%0) : tensor<?xf32, #vllm_ir.layout<sizes = ["u0"]>>
}

// -----

// CHECK: user.py:5: @aten.nonzero.default: the size of its result depends on the elements of its operand
vllm_ir.func functional @main(%x: tensor<3x4xf32>) -> tensor<?x2xi64, #vllm_ir.layout<sizes = ["u0", 2]>> {
  %0 = torch.call @aten.nonzero.default(%x) : (tensor<3x4xf32>) -> tensor<?x2xi64, #vllm_ir.layout<sizes = ["u0", 2]>> loc("user.py":5:0)
  vllm_ir.return (%0) : tensor<?x2xi64, #vllm_ir.layout<sizes = ["u0", 2]>>
}

// -----

// CHECK: @aten.index_put.default: a mask is an index beside another index; write with torch.where, or by one of them
vllm_ir.func functional @main(%x: tensor<3x4xf32>, %mask: tensor<3xi1>, %i: tensor<1xi64>, %v: tensor<f32>) -> tensor<3x4xf32> {
  %0 = torch.call @aten.index_put.default(%x, [%mask, %i], %v, false) : (tensor<3x4xf32>, tensor<3xi1>, tensor<1xi64>, tensor<f32>) -> tensor<3x4xf32>
  vllm_ir.return (%0) : tensor<3x4xf32>
}

// -----

// CHECK: {{^}}@_c10d_functional.all_reduce.default: group '7' has no replica groups in vllm_ir.replica_groups
vllm_ir.func functional @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = torch.call @_c10d_functional.all_reduce.default(%x, "sum", "7") : (tensor<4xf32>) -> tensor<4xf32>
  vllm_ir.return (%0) : tensor<4xf32>
}

// -----

// CHECK: @_c10d_functional.all_to_all_single.default: output_split_sizes is [1, 3]; StableHLO exchanges pieces of equal
builtin.module attributes {vllm_ir.replica_groups = {"1" = [array<i64: 0, 1>]}} {
  vllm_ir.func functional @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = torch.call @_c10d_functional.all_to_all_single.default(%x, [1, 3], [1, 3], "1") : (tensor<4xf32>) -> tensor<4xf32>
    vllm_ir.return (%0) : tensor<4xf32>
  }
}
