// RUN: vllm-ir-opt %s -p functionalize,lower,eliminate-clones --validate -o %t 2>&1 | filecheck %s
// RUN: vllm-ir-opt %s -p functionalize --validate --validate-inputs plain --validate-seed 3 2>&1 | filecheck %s --check-prefix ONE
// RUN: vllm-ir-opt %s -p alias-outputs,functionalize,convert-to-stablehlo,narrow-updates --validate -o %t 2>&1 | filecheck %s --check-prefix HLO
// RUN: rm -rf %t.d
// RUN: not vllm-ir-opt %s --load %p/faulty_pass.py -p functionalize,faulty --validate --reproducers %t.d 2>&1 | filecheck %s --check-prefix FAULT
// RUN: sh -c "cat %t.d/faulty-*.mlir" | filecheck %s --check-prefix FILE

vllm_ir.func @main(%cache: !vllm_ir.buffer<4x8xf32> {vllm_ir.mutated}, %x: tensor<8xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
  %row = vllm_ir.view @aten.select.int(%cache, 0, 1) : (!vllm_ir.buffer<4x8xf32>) -> !vllm_ir.buffer<8xf32, offset = 8>
  %sub = torch.call @aten.sub.Tensor(%x, %y, alpha = 1) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  vllm_ir.write %sub, %row : tensor<8xf32>, !vllm_ir.buffer<8xf32, offset = 8>
  %exp = torch.call @aten.exp.default(%sub) : (tensor<8xf32>) -> tensor<8xf32>
  vllm_ir.return %exp : tensor<8xf32>
}

// CHECK:      validation: functionalize: exact (plain, other numbers, edge values, shared inputs; {{.*}} s)
// CHECK-NEXT: validation: lower: exact (
// CHECK-NEXT: validation: eliminate-clones: exact (

// ONE: validation: functionalize: exact (plain; {{.*}} s)
// ONE: vllm_ir.func functional @main

// HLO:      validation: alias-outputs: exact (
// HLO-NEXT: validation: functionalize: exact (
// HLO-NEXT: validation: convert-to-stablehlo: {{exact|rounding, largest error .*, bound .*}} (
// HLO-NEXT: validation: narrow-updates: exact (

// FAULT:      validation: functionalize: exact (
// FAULT-NEXT: validation: faulty: FAILED: output 0: 8 of 8 elements differ, element {{.*}} (inputs: plain) (plain; {{.*}} s)
// FAULT-NEXT: {{.*}}error: validation: pass faulty changes what the program does: output 0: 8 of 8 elements differ, {{.*}}; {{.*}}faulty-{{[0-9a-f]+}}.mlir shows it

// FILE:      {{// RU[N]:}} vllm-ir-opt %s -p 'faulty' --validate --validate-inputs 'plain' --validate-seed 0
// FILE:      vllm_ir.func functional @main(%x: tensor<8xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
// FILE-NEXT:   %sub = torch.call @aten.sub.Tensor(%x, %y, alpha = 1)
// FILE-NEXT:   vllm_ir.return (%sub)
