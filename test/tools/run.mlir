// RUN: vllm-ir-opt %s --run | filecheck %s
// RUN: vllm-ir-opt %s -p functionalize --run | filecheck %s
// RUN: vllm-ir-opt %s -p functionalize,lower,eliminate-clones --run | filecheck %s
// RUN: vllm-ir-opt %s -p alias-outputs,functionalize --run | filecheck %s
// RUN: vllm-ir-opt %s -p alias-outputs,functionalize,convert-to-stablehlo --run | filecheck %s

// One seed gives the same inputs at every level, and the program does the same to them.

vllm_ir.func @main(%x: !vllm_ir.buffer<2x2xi32> {vllm_ir.mutated}) -> (!vllm_ir.buffer<2x2xi32> {vllm_ir.aliases = 0 : i64}, tensor<2xi32>) {
  %row = vllm_ir.view @aten.select.int(%x, 0, 1) : (!vllm_ir.buffer<2x2xi32>) -> !vllm_ir.buffer<2xi32, offset = 2>
  %old = vllm_ir.read %row : !vllm_ir.buffer<2xi32, offset = 2> -> tensor<2xi32>
  %fill = torch.call @aten.fill_.Scalar(%row, 7) reads(%row) writes(%row) returns [0]
    : (!vllm_ir.buffer<2xi32, offset = 2>) -> !vllm_ir.buffer<2xi32, offset = 2>
  vllm_ir.return (%x, %old) : !vllm_ir.buffer<2x2xi32>, tensor<2xi32>
}

// CHECK:      output 0: int32[2, 2], memory of input 0
// CHECK-NEXT:   [{{\[[01], [01]\]}}, [7, 7]]
// CHECK-NEXT: output 1: int32[2]
// CHECK-NEXT:   {{\[[01], [01]\]}}
// CHECK-NEXT: input 0 afterwards: int32[2, 2]
// CHECK-NEXT:   [{{\[[01], [01]\]}}, [7, 7]]
