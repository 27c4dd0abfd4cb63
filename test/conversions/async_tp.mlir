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

// -----

// A linear layer with a bias, and a product of 8-bit floats with a scale for each row, whose bytes are gathered.
// CHECK: vllm_ir.split_products = ["vllm_ir.all_gather %whole", "vllm_ir.all_gather %narrow"]
// CHECK: torch.call @_c10d_functional.all_gather_into_tensor.default({{%.*}}, 2, "tp") : (tensor<2x16xf32>) -> tensor<4x16xf32>
// CHECK: torch.call @aten.addmm.default(%b, {{%.*}}, {{%.*}}, beta = 1, alpha = 1) : (tensor<16xf32>, tensor<4x16xf32>,
// CHECK: torch.call @aten.addmm.default(%b
// CHECK: torch.call @_c10d_functional.all_gather_into_tensor.default({{%.*}}, 2, "tp") : (tensor<2x16xui8>) -> tensor<4x16xui8>
// CHECK: torch.call @aten._scaled_mm.default({{%.*}}, %n, {{%.*}}, %t, none, none, bf16, false) : (tensor<4x16xf8E4M3FN>, tensor<16x16xf8E4M3FN, #vllm_ir.layout<strides = [1, 16]>>, tensor<4x1xf32>, tensor<1x16xf32>) -> tensor<4x16xbf16>
builtin.module attributes {vllm_ir.group_places = {tp = {ranks = 2 : i64}}} {
  vllm_ir.func functional @main(%x: tensor<4x16xf32>, %m: tensor<16x16xf32>, %b: tensor<16xf32>, %q: tensor<4x16xf8E4M3FN>, %n: tensor<16x16xf8E4M3FN, #vllm_ir.layout<strides = [1, 16]>>, %s: tensor<8x1xf32>, %t: tensor<1x16xf32>) -> (tensor<8x16xf32>, tensor<8x16xbf16>) {
    %whole = "vllm_ir.all_gather"(%x) <{dim = 0 : i64, world_size = 2 : i64, group_name = "tp"}> : (tensor<4x16xf32>) -> tensor<8x16xf32>
    %y = torch.call @aten.linear.default(%whole, %m, %b) : (tensor<8x16xf32>, tensor<16x16xf32>, tensor<16xf32>) -> tensor<8x16xf32>
    %narrow = "vllm_ir.all_gather"(%q) <{dim = 0 : i64, world_size = 2 : i64, group_name = "tp"}> : (tensor<4x16xf8E4M3FN>) -> tensor<8x16xf8E4M3FN>
    %z = torch.call @aten._scaled_mm.default(%narrow, %n, %s, %t, none, none, bf16, false) : (tensor<8x16xf8E4M3FN>, tensor<16x16xf8E4M3FN, #vllm_ir.layout<strides = [1, 16]>>, tensor<8x1xf32>, tensor<1x16xf32>) -> tensor<8x16xbf16>
    vllm_ir.return (%y, %z) : tensor<8x16xf32>, tensor<8x16xbf16>
  }
}

// -----

// A bias that the ranks have apart is added on each of them, in every row once.
// CHECK: vllm_ir.split_products = ["vllm_ir.reduce_scatter %sum"]
// CHECK: torch.call @aten.addmm.default(%b, {{%.*}}, %m, beta = 1, alpha = 1) : (tensor<8xf32>, tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
// CHECK: torch.call @_c10d_functional.reduce_scatter_tensor.default
builtin.module attributes {vllm_ir.group_places = {tp = {ranks = 2 : i64}}} {
  vllm_ir.func functional @main(%x: tensor<8x8xf32>, %m: tensor<8x8xf32>, %b: tensor<8xf32>) -> tensor<4x8xf32> {
    %y = torch.call @aten.addmm.default(%b, %x, %m, beta = 1, alpha = 1) : (tensor<8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %sum = "vllm_ir.reduce_scatter"(%y) <{dim = 0 : i64, world_size = 2 : i64, group_name = "tp"}> : (tensor<8x8xf32>) -> tensor<4x8xf32>
    vllm_ir.return %sum : tensor<4x8xf32>
  }
}
