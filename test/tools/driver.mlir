// Options of xDSL's driver, on text. None of these runs loads PyTorch.

// RUN: vllm-ir-opt %s | filecheck %s
// RUN: vllm-ir-opt < %s | filecheck %s
// RUN: vllm-ir-opt -f mlir %s -t mlir | filecheck %s
// CHECK: builtin.module {
// CHECK-NEXT: vllm_ir.func @twice
// CHECK-NEXT: %a = torch.call @aten.neg.default(%x)
// CHECK-NEXT: %b = torch.call @aten.neg.default(%x)

// RUN: vllm-ir-opt %s -p cse,dce | filecheck %s --check-prefix CSE
// RUN: vllm-ir-opt %s -p 'canonicalize,cse{},dce' | filecheck %s --check-prefix CSE
// CSE: %a = torch.call @aten.neg.default(%x)
// CSE-NEXT: vllm_ir.return %a

// RUN: vllm-ir-opt %s -p cse,dce --print-between-passes --time-passes | filecheck %s --check-prefix BETWEEN
// BETWEEN: Pass cse took {{[0-9.e-]+}} seconds
// BETWEEN-NEXT: IR after cse:
// BETWEEN-NEXT: builtin.module {
// BETWEEN: Pass dce took {{[0-9.e-]+}} seconds
// BETWEEN-NEXT: builtin.module {

// RUN: vllm-ir-opt %s --print-op-generic | filecheck %s --check-prefix GENERIC
// RUN: vllm-ir-opt %s --print-op-generic --print-no-properties | filecheck %s --check-prefix ATTRIBUTES
// GENERIC: "torch.call"(%x) <{callee = @aten.neg.default, args = [#torch.operand<0>]}> : (tensor<2xf32>) -> tensor<2xf32>
// ATTRIBUTES: "torch.call"(%x) {callee = @aten.neg.default, args = [#torch.operand<0>]} : (tensor<2xf32>) -> tensor<2xf32>

// Locations are printed, and read back.
// RUN: vllm-ir-opt %s --print-debuginfo | vllm-ir-opt --print-debuginfo | filecheck %s --check-prefix LOCATION
// LOCATION: %a = torch.call @aten.neg.default(%x) : (tensor<2xf32>) -> tensor<2xf32> loc("model.py":7:3)

// RUN: vllm-ir-opt %s -o %t.mlir --time-passes -p dce | filecheck %s --check-prefix TIMED
// RUN: filecheck %s --input-file %t.mlir --check-prefix FILE
// FILE: builtin.module {
// FILE: vllm_ir.return %a
// TIMED-NOT: builtin.module
// TIMED: Pass dce took

vllm_ir.func @twice(%x: tensor<2xf32>) -> (tensor<2xf32>) {
  %a = torch.call @aten.neg.default(%x) : (tensor<2xf32>) -> tensor<2xf32> loc("model.py":7:3)
  %b = torch.call @aten.neg.default(%x) : (tensor<2xf32>) -> tensor<2xf32>
  vllm_ir.return %a : tensor<2xf32>
}
