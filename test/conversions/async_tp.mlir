// RUN: vllm-ir-opt %s -p async-tp --split-input-file | filecheck %s

// CHECK: vllm_ir.split_products = ["vllm_ir.all_gather %whole", "vllm_ir.reduce_scatter %sum"]
// CHECK: torch.call @_c10d_functional.all_gather_into_tensor.default({{%.*}}, 2, "tp") : (tensor<2x8xf32>) -> tensor<4x8xf32>
// CHECK: torch.call @_c10d_functional.all_gather_into_tensor.default({{%.*}}, 2, "tp")
// CHECK: torch.call @_c10d_functional.wait_tensor.default
// CHECK: torch.call @aten.mm.default({{%.*}}, %m) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
// CHECK: torch.call @_c10d_functional.wait_tensor.default
// CHECK: torch.call @aten.mm.default({{%.*}}, %m)
// CHECK: torch.call @_c10d_functional.reduce_scatter_tensor.default({{%.*}}, "sum", 2, "tp") : (tensor<4x8xf32>) -> tensor<2x8xf32>
// CHECK: torch.call @_c10d_functional.reduce_scatter_tensor.default({{%.*}}, "sum", 2, "tp")
// CHECK: torch.call @aten.cat.default({{.*}}) : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
builtin.module attributes {vllm_ir.group_places = {tp = {ranks = 2 : i64}}} {
  vllm_ir.func functional @main(%x: tensor<4x8xf32>, %m: tensor<8x8xf32>) -> tensor<4x8xf32> {
    %whole = "vllm_ir.all_gather"(%x) <{dim = 0 : i64, world_size = 2 : i64, group_name = "tp"}> : (tensor<4x8xf32>) -> tensor<8x8xf32>
    %y = torch.call @aten.mm.default(%whole, %m) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %z = torch.call @aten.relu.default(%y) : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %u = torch.call @aten.mm.default(%z, %m) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %sum = "vllm_ir.reduce_scatter"(%u) <{dim = 0 : i64, world_size = 2 : i64, group_name = "tp"}> : (tensor<8x8xf32>) -> tensor<4x8xf32>
    vllm_ir.return %sum : tensor<4x8xf32>
  }
}

// -----

// The gathered rows are the right side of the product.
// CHECK: vllm_ir.unsplit_products = ["vllm_ir.all_gather %whole: @aten.mm.default is behind it, which is no matrix product of its rows"]
builtin.module attributes {vllm_ir.group_places = {tp = {ranks = 2 : i64}}} {
  vllm_ir.func functional @main(%x: tensor<4x8xf32>, %m: tensor<8x8xf32>) -> tensor<8x8xf32> {
    %whole = "vllm_ir.all_gather"(%x) <{dim = 0 : i64, world_size = 2 : i64, group_name = "tp"}> : (tensor<4x8xf32>) -> tensor<8x8xf32>
    %y = torch.call @aten.mm.default(%m, %whole) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    vllm_ir.return %y : tensor<8x8xf32>
  }
}
