// RUN: vllm-ir-opt %s -p check-shards --split-input-file --verify-diagnostics | filecheck %s

// CHECK: torch.call @aten.add.Tensor
builtin.module attributes {vllm_ir.group_places = {tp = {ranks = 2 : i64, rank = 1 : i64}}} {
  vllm_ir.func functional @fine(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %a = "vllm_ir.reduce_scatter"(%x) <{dim = 0 : i64, world_size = 2 : i64, group_name = "tp"}> {vllm_ir.sharded = {dim = 0 : i64, group = "tp"}} : (tensor<4x8xf32>) -> tensor<2x8xf32>
    %rows = torch.call @aten.view.default(%x, [2, 2, 8]) : (tensor<4x8xf32>) -> tensor<2x2x8xf32>
    %b = torch.call @aten.select.int(%rows, 0, 1) attributes {vllm_ir.sharded = {dim = 0 : i64, group = "tp"}} : (tensor<2x2x8xf32>) -> tensor<2x8xf32>
    %c = torch.call @aten.add.Tensor(%a, %b, alpha = 1) attributes {vllm_ir.sharded = {dim = 0 : i64, group = "tp"}} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
    %d = "vllm_ir.all_gather"(%c) <{dim = 0 : i64, world_size = 2 : i64, group_name = "tp"}> : (tensor<2x8xf32>) -> tensor<4x8xf32>
    vllm_ir.return %d : tensor<4x8xf32>
  }
}

// -----

// CHECK: vllm_ir.return: %a is a piece (dimension 0 of group 'tp'), and only an all_gather makes it whole
vllm_ir.func functional @returned(%x: tensor<4x8xf32>) -> tensor<2x8xf32> {
  %a = "vllm_ir.reduce_scatter"(%x) <{dim = 0 : i64, world_size = 2 : i64, group_name = "tp"}> {vllm_ir.sharded = {dim = 0 : i64, group = "tp"}} : (tensor<4x8xf32>) -> tensor<2x8xf32>
  vllm_ir.return %a : tensor<2x8xf32>
}

// -----

// CHECK: vllm_ir.all_gather: %a is a piece (dimension 0 of group 'tp'), and only an all_gather makes it whole
vllm_ir.func functional @other_group(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %a = "vllm_ir.reduce_scatter"(%x) <{dim = 0 : i64, world_size = 2 : i64, group_name = "tp"}> {vllm_ir.sharded = {dim = 0 : i64, group = "tp"}} : (tensor<4x8xf32>) -> tensor<2x8xf32>
  %b = "vllm_ir.all_gather"(%a) <{dim = 0 : i64, world_size = 2 : i64, group_name = "dp"}> : (tensor<2x8xf32>) -> tensor<4x8xf32>
  vllm_ir.return %b : tensor<4x8xf32>
}

// -----

// CHECK: @aten.mm.default: %a is a piece (dimension 0 of group 'tp'), and the operation does not go row by row
vllm_ir.func functional @product(%x: tensor<4x8xf32>, %m: tensor<8x8xf32>) -> tensor<2x8xf32> {
  %a = "vllm_ir.reduce_scatter"(%x) <{dim = 0 : i64, world_size = 2 : i64, group_name = "tp"}> {vllm_ir.sharded = {dim = 0 : i64, group = "tp"}} : (tensor<4x8xf32>) -> tensor<2x8xf32>
  %b = torch.call @aten.mm.default(%a, %m) attributes {vllm_ir.sharded = {dim = 0 : i64, group = "tp"}} : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  vllm_ir.return %b : tensor<2x8xf32>
}

// -----

// CHECK: vllm_ir.fused_add_rms_norm: %r is whole, and the operation goes row by row over pieces (dimension 0 of group 'tp')
vllm_ir.func functional @whole(%x: tensor<4x8xf32>, %r: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %a = "vllm_ir.reduce_scatter"(%x) <{dim = 0 : i64, world_size = 2 : i64, group_name = "tp"}> {vllm_ir.sharded = {dim = 0 : i64, group = "tp"}} : (tensor<4x8xf32>) -> tensor<2x8xf32>
  %y, %s = vllm_ir.fused_add_rms_norm %a, %r : tensor<2x8xf32>, tensor<2x8xf32> {epsilon = 1.0e-05 : f64, vllm_ir.sharded = {dim = 0 : i64, group = "tp"}} -> tensor<2x8xf32>, tensor<2x8xf32>
  vllm_ir.return %r : tensor<2x8xf32>
}

// -----

// CHECK: @aten.add.Tensor: %b is a piece (dimension 0 of group 'dp'), and the results are pieces of dimension 0 of group 'tp'
vllm_ir.func functional @mixed(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %a = "vllm_ir.reduce_scatter"(%x) <{dim = 0 : i64, world_size = 2 : i64, group_name = "tp"}> {vllm_ir.sharded = {dim = 0 : i64, group = "tp"}} : (tensor<4x8xf32>) -> tensor<2x8xf32>
  %b = "vllm_ir.reduce_scatter"(%x) <{dim = 0 : i64, world_size = 2 : i64, group_name = "dp"}> {vllm_ir.sharded = {dim = 0 : i64, group = "dp"}} : (tensor<4x8xf32>) -> tensor<2x8xf32>
  %c = torch.call @aten.add.Tensor(%a, %b, alpha = 1) attributes {vllm_ir.sharded = {dim = 0 : i64, group = "tp"}} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
  vllm_ir.return %x : tensor<4x8xf32>
}

// -----

// Rank 1 takes the rows of rank 0.
// CHECK: @aten.select.int: is said to give pieces (dimension 0 of group 'tp'), and neither scatters rows nor takes the rank's own
builtin.module attributes {vllm_ir.group_places = {tp = {ranks = 2 : i64, rank = 1 : i64}}} {
  vllm_ir.func functional @others(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %rows = torch.call @aten.view.default(%x, [2, 2, 8]) : (tensor<4x8xf32>) -> tensor<2x2x8xf32>
    %b = torch.call @aten.select.int(%rows, 0, 0) attributes {vllm_ir.sharded = {dim = 0 : i64, group = "tp"}} : (tensor<2x2x8xf32>) -> tensor<2x8xf32>
    vllm_ir.return %x : tensor<4x8xf32>
  }
}

// -----

// CHECK: vllm_ir.reduce_scatter: is said to give pieces (dimension 0 of group 'tp'), and neither scatters rows nor takes the rank's own
vllm_ir.func functional @columns(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %a = "vllm_ir.reduce_scatter"(%x) <{dim = 1 : i64, world_size = 2 : i64, group_name = "tp"}> {vllm_ir.sharded = {dim = 0 : i64, group = "tp"}} : (tensor<4x8xf32>) -> tensor<4x4xf32>
  vllm_ir.return %x : tensor<4x8xf32>
}

// -----

// CHECK: vllm_ir.reduce_scatter: vllm_ir.sharded is {dim = 1 : i64, group = "tp"}; it takes {dim = 0 : i64, group = "name"}
vllm_ir.func functional @malformed(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %a = "vllm_ir.reduce_scatter"(%x) <{dim = 1 : i64, world_size = 2 : i64, group_name = "tp"}> {vllm_ir.sharded = {dim = 1 : i64, group = "tp"}} : (tensor<4x8xf32>) -> tensor<4x4xf32>
  vllm_ir.return %x : tensor<4x8xf32>
}
