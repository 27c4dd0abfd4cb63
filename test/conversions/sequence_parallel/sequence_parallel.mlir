// RUN: vllm-ir-opt %s -p sequence-parallel --split-input-file | filecheck %s

// The sum is scattered, the rank's rows of the residual are taken, and the norm of these rows is gathered.
// CHECK: builtin.module attributes
// CHECK-SAME: vllm_ir.collective_bytes = {before = "128", after = "128"}
// CHECK-SAME: vllm_ir.sharded_sums = ["vllm_ir.all_reduce %sum"]
// CHECK: [[piece:%.*]] = "vllm_ir.reduce_scatter"(%x) <{dim = 0 : i64, world_size = 2 : i64, group_name = "tp"}> {vllm_ir.sharded = {dim = 0 : i64, group = "tp"}} : (tensor<4x8xf32>) -> tensor<2x8xf32>
// CHECK-NEXT: [[rows:%.*]] = torch.call @aten.{{view|reshape}}.default(%r, [2, 2, 8])
// CHECK-NEXT: [[own:%.*]] = torch.call @aten.select.int([[rows]], 0, 1) attributes {vllm_ir.sharded = {dim = 0 : i64, group = "tp"}}
// CHECK-NEXT: [[y:%.*]], [[s:%.*]] = vllm_ir.fused_add_rms_norm [[piece]], [[own]]
// CHECK-SAME: vllm_ir.sharded
// CHECK-SAME: -> tensor<2x8xf32>, tensor<2x8xf32>
// CHECK-NEXT: [[whole:%.*]] = "vllm_ir.all_gather"([[y]])
// CHECK-NEXT: vllm_ir.return [[whole]] : tensor<4x8xf32>
builtin.module attributes {vllm_ir.group_places = {tp = {ranks = 2 : i64, rank = 1 : i64}}} {
  vllm_ir.func functional @main(%x: tensor<4x8xf32>, %r: tensor<4x8xf32>, %w: tensor<8xf32>) -> tensor<4x8xf32> {
    %sum = "vllm_ir.all_reduce"(%x) <{group_name = "tp"}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %y, %s = vllm_ir.fused_add_rms_norm %sum, %r : tensor<4x8xf32>, tensor<4x8xf32> weight %w : tensor<8xf32> {epsilon = 1.0e-05 : f64} -> tensor<4x8xf32>, tensor<4x8xf32>
    vllm_ir.return %y : tensor<4x8xf32>
  }
}

// -----

// What is quantised is quantised in front of the gather. torch's collective and the wait for it are one sum.
// CHECK: before = "64", after = "56"
// CHECK: "vllm_ir.reduce_scatter"(%x)
// CHECK-NOT: wait_tensor
// CHECK: [[y:%.*]] = vllm_ir.rms_norm
// CHECK-NEXT: [[q:%.*]], [[scales:%.*]] = "vllm_ir.dynamic_per_token_scaled_int8_quant"([[y]]) {vllm_ir.sharded
// CHECK-NEXT: "vllm_ir.all_gather"([[q]]) {{.*}} (tensor<2x8xi8>) -> tensor<4x8xi8>
// CHECK-NEXT: "vllm_ir.all_gather"([[scales]]) {{.*}} (tensor<2x1xf32>) -> tensor<4x1xf32>
// CHECK-NEXT: vllm_ir.return
builtin.module attributes {vllm_ir.group_places = {tp = {ranks = 2 : i64}}} {
  vllm_ir.func functional @main(%x: tensor<4x8xbf16>, %w: tensor<8xbf16>) -> (tensor<4x8xi8>, tensor<4x1xf32>) {
    %sent = torch.call @_c10d_functional.all_reduce.default(%x, "sum", "tp") : (tensor<4x8xbf16>) -> tensor<4x8xbf16>
    %sum = torch.call @_c10d_functional.wait_tensor.default(%sent) external : (tensor<4x8xbf16>) -> tensor<4x8xbf16>
    %y = vllm_ir.rms_norm %sum : tensor<4x8xbf16> weight %w : tensor<8xbf16> {epsilon = 1.0e-05 : f64} -> tensor<4x8xbf16>
    %q, %scales = "vllm_ir.dynamic_per_token_scaled_int8_quant"(%y) : (tensor<4x8xbf16>) -> (tensor<4x8xi8>, tensor<4x1xf32>)
    vllm_ir.return (%q, %scales) : tensor<4x8xi8>, tensor<4x1xf32>
  }
}

// -----

// A norm whose result is needed whole by others as well is gathered once, in front of the quantisation.
// CHECK: [[y:%.*]] = vllm_ir.rms_norm
// CHECK-NEXT: [[whole:%.*]] = "vllm_ir.all_gather"([[y]])
// CHECK-NEXT: "vllm_ir.dynamic_per_token_scaled_int8_quant"([[whole]]) : (tensor<4x8xf32>)
builtin.module attributes {vllm_ir.group_places = {tp = {ranks = 2 : i64}}} {
  vllm_ir.func functional @main(%x: tensor<4x8xf32>, %w: tensor<8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>, tensor<4x8xf32>) {
    %sum = "vllm_ir.all_reduce"(%x) <{group_name = "tp"}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %y = vllm_ir.rms_norm %sum : tensor<4x8xf32> weight %w : tensor<8xf32> {epsilon = 1.0e-05 : f64} -> tensor<4x8xf32>
    %q, %scales = "vllm_ir.dynamic_per_token_scaled_int8_quant"(%y) : (tensor<4x8xf32>) -> (tensor<4x8xi8>, tensor<4x1xf32>)
    vllm_ir.return (%q, %scales, %y) : tensor<4x8xi8>, tensor<4x1xf32>, tensor<4x8xf32>
  }
}

// -----

// The residual is needed whole: more would be gathered than is saved.
// CHECK: vllm_ir.unsharded_sums = ["vllm_ir.all_reduce %sum: %sum is used by vllm_ir.fused_add_rms_norm, which would have more to be gathered behind it than in front of it; extra_bytes=true allows it"]
// CHECK: "vllm_ir.all_reduce"
builtin.module attributes {vllm_ir.group_places = {tp = {ranks = 2 : i64, rank = 1 : i64}}} {
  vllm_ir.func functional @main(%x: tensor<4x8xf32>, %r: tensor<4x8xf32>, %w: tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
    %sum = "vllm_ir.all_reduce"(%x) <{group_name = "tp"}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %y, %s = vllm_ir.fused_add_rms_norm %sum, %r : tensor<4x8xf32>, tensor<4x8xf32> weight %w : tensor<8xf32> {epsilon = 1.0e-05 : f64} -> tensor<4x8xf32>, tensor<4x8xf32>
    vllm_ir.return (%y, %s) : tensor<4x8xf32>, tensor<4x8xf32>
  }
}

// -----

// CHECK: vllm_ir.unsharded_sums = ["vllm_ir.all_reduce %sum: 3 rows do not go into 2 equal pieces; pad=true adds rows"]
builtin.module attributes {vllm_ir.group_places = {tp = {ranks = 2 : i64}}} {
  vllm_ir.func functional @main(%x: tensor<3x8xf32>) -> tensor<3x8xf32> {
    %sum = "vllm_ir.all_reduce"(%x) <{group_name = "tp"}> : (tensor<3x8xf32>) -> tensor<3x8xf32>
    %y = vllm_ir.rms_norm %sum : tensor<3x8xf32> {epsilon = 1.0e-05 : f64} -> tensor<3x8xf32>
    vllm_ir.return %y : tensor<3x8xf32>
  }
}
