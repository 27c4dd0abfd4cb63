// RUN: vllm-ir-opt %s | vllm-ir-opt | filecheck %s
// RUN: vllm-ir-opt %s --print-op-generic | vllm-ir-opt | filecheck %s
// RUN: vllm-ir-opt %s --print-op-generic | filecheck %s --check-prefix GENERIC

// CHECK: vllm_ir.func @main(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated, vllm_ir.storage = 0 : i64}, %y: !vllm_ir.buffer<4xf32, offset = 2> {vllm_ir.storage = 0 : i64, vllm_ir.window = !vllm_ir.buffer<2x2xf32, offset = 2>}, %w: tensor<4xf32> {vllm_ir.donated, vllm_ir.resource = "model.weight"}, %n: i64 {vllm_ir.symbol = "s0"}) -> (tensor<4xf32>, !vllm_ir.buffer<2xf32> {vllm_ir.aliases = 0 : i64}) {
// GENERIC: "vllm_ir.func"() <{sym_name = "main", function_type = (!vllm_ir.buffer<4xf32>, !vllm_ir.buffer<4xf32, offset = 2>, tensor<4xf32>, i64) -> (tensor<4xf32>, !vllm_ir.buffer<2xf32>), arg_attrs = [{vllm_ir.mutated, vllm_ir.storage = 0 : i64}, {vllm_ir.storage = 0 : i64, vllm_ir.window = !vllm_ir.buffer<2x2xf32, offset = 2>}, {vllm_ir.donated, vllm_ir.resource = "model.weight"}, {vllm_ir.symbol = "s0"}], res_attrs = [{}, {vllm_ir.aliases = 0 : i64}]}> ({
vllm_ir.func @main(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated, vllm_ir.storage = 0 : i64},
                   %y: !vllm_ir.buffer<4xf32, offset = 2> {vllm_ir.storage = 0 : i64, vllm_ir.window = !vllm_ir.buffer<2x2xf32, offset = 2>},
                   %w: tensor<4xf32> {vllm_ir.donated, vllm_ir.resource = "model.weight"},
                   %n: i64 {vllm_ir.symbol = "s0"}) -> (tensor<4xf32>, !vllm_ir.buffer<2xf32> {vllm_ir.aliases = 0 : i64}) {
  %v = vllm_ir.view @aten.slice.Tensor(%x, 0, 0, 2) : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<2xf32>
  %z = torch.call @aten.zero_.default(%v) writes(%v) returns [0] : (!vllm_ir.buffer<2xf32>) -> !vllm_ir.buffer<2xf32>
  // CHECK: vllm_ir.return (%w, {"a" = [none, 3, true, %z]}) : tensor<4xf32>, !vllm_ir.buffer<2xf32>
  // GENERIC: "vllm_ir.return"(%w, %z) <{structure = #torch.tuple<[#torch.operand<0>, {a = [#torch.none, 3 : i64, true, #torch.operand<1>]}]>}> : (tensor<4xf32>, !vllm_ir.buffer<2xf32>) -> ()
  vllm_ir.return (%w, {"a" = [none, 3, true, %z]}) : tensor<4xf32>, !vllm_ir.buffer<2xf32>
}

// CHECK: vllm_ir.func functional @step(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}, %y: tensor<4xf32>) -> (tensor<4xf32>, !vllm_ir.buffer<4xf32>, !vllm_ir.buffer<4xf32> {vllm_ir.aliases = 0 : i64}) attributes {note = "kept"} {
// GENERIC: sym_name = "step",{{.*}} functional, arg_attrs = [{vllm_ir.mutated}, {}], res_attrs = [{}, {}, {vllm_ir.aliases = 0 : i64}]}> ({
vllm_ir.func functional @step(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}, %y: tensor<4xf32>) -> (tensor<4xf32>, !vllm_ir.buffer<4xf32>, !vllm_ir.buffer<4xf32> {vllm_ir.aliases = 0 : i64}) attributes {note = "kept"} {
  %old = vllm_ir.read %x : !vllm_ir.buffer<4xf32> -> tensor<4xf32>
  %norm = vllm_ir.rms_norm %y : tensor<4xf32> {epsilon = 1.0e-05 : f64, donated = array<i64: 0>} -> tensor<4xf32>
  %new, %updated = torch.call @ns.op(%old, %norm) updates [0] : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  vllm_ir.write %updated, %x : tensor<4xf32>, !vllm_ir.buffer<4xf32>
  %a = vllm_ir.alloc %new : tensor<4xf32> -> !vllm_ir.buffer<4xf32>
  %v = vllm_ir.view @aten.alias.default(%x) : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<4xf32>
  vllm_ir.return [%new, %a, %v] : tensor<4xf32>, !vllm_ir.buffer<4xf32>, !vllm_ir.buffer<4xf32>
}

// CHECK: vllm_ir.func @nothing() {
// CHECK-NEXT: vllm_ir.return ()
vllm_ir.func @nothing() {
  vllm_ir.return ()
}
