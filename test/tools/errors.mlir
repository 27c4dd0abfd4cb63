// Every error is one line with its place, and nothing is written.

// RUN: not vllm-ir-opt %s --split-input-file 2>&1 | filecheck %s
// CHECK: {{.*}}errors.mlir:{{[0-9]+}}:3: error: vllm_ir.rms_norm: variance_size 9 is not in [1, 8], the last dimension of x (from model.py:12:5)

// RUN: not vllm-ir-opt %s 2>&1 | filecheck %s --check-prefix PARSE
// PARSE: {{.*}}errors.mlir:{{[0-9]+}}:38: error: strides of dimension 0 is -1, which is negative

// RUN: not vllm-ir-opt %s -p nope 2>&1 | filecheck %s --check-prefix PASS
// PASS: vllm-ir-opt: error: unknown pass 'nope'; passes are alias-outputs, specialize, functionalize, {{.*}}, canonicalize, cse, dce; pipelines are vllm-ir-functional, vllm-ir-lowered, vllm-ir-in-place
// RUN: not vllm-ir-opt %s -p vllm-ir-functionl 2>&1 | filecheck %s --check-prefix NEAR
// NEAR: vllm-ir-opt: error: unknown pass 'vllm-ir-functionl', did you mean 'vllm-ir-functional'? passes are
// RUN: not vllm-ir-opt %s -p 'vllm-ir-functional{a=1}' 2>&1 | filecheck %s --check-prefix PIPELINE
// PIPELINE: vllm-ir-opt: error: pipeline 'vllm-ir-functional' takes no options, its passes do: functionalize
// RUN: not vllm-ir-opt %s -p 'cse{a=1}' 2>&1 | filecheck %s --check-prefix OPTION
// OPTION: vllm-ir-opt: error: pass 'cse': Provided arguments ["a"] not found in expected arguments []
// RUN: not vllm-ir-opt %s -p 'cse{a' 2>&1 | filecheck %s --check-prefix SPEC
// SPEC: vllm-ir-opt: error: pass pipeline 'cse{a': column 6: Expected equals, space or end of arguments here
// RUN: not vllm-ir-opt %s -t nope 2>&1 | filecheck %s --check-prefix TARGET
// TARGET: vllm-ir-opt: error: unknown target 'nope'; targets are mlir, fx, stablehlo, vhlo, hlo-proto
// RUN: not vllm-ir-opt %s --nope 2>&1 | filecheck %s --check-prefix FLAG
// FLAG: vllm-ir-opt: error: unrecognized arguments: --nope; see vllm-ir-opt --help
// RUN: not vllm-ir-opt %t.missing.mlir 2>&1 | filecheck %s --check-prefix MISSING
// MISSING: {{.*}}missing.mlir: error: no such file or directory
// RUN: not vllm-ir-opt model.onnx 2>&1 | filecheck %s --check-prefix KIND
// KIND: vllm-ir-opt: error: input 'model.onnx' is neither file.mlir, file.pt2 nor file.py:callable; -f says what it is
// RUN: not vllm-ir-opt model.py 2>&1 | filecheck %s --check-prefix CALLABLE
// CALLABLE: vllm-ir-opt: error: input 'model.py' does not say what to import: write file.py:callable
// RUN: not vllm-ir-opt %s --ir-op-priority.rms_norm= 2>&1 | filecheck %s --check-prefix PROVIDERS
// PROVIDERS: vllm-ir-opt: error: --ir-op-priority.rms_norm '': write --ir-op-priority.OP=PROVIDER,PROVIDER

// Diagnostics that were asked for are results, and the chunks behind them are processed.
// RUN: vllm-ir-opt %s --split-input-file --verify-diagnostics --parsing-diagnostics | filecheck %s --check-prefix DIAGNOSTICS
// DIAGNOSTICS: variance_size 9 is not in [1, 8], the last dimension of x
// DIAGNOSTICS: | Operation does not verify: variance_size 9
// DIAGNOSTICS: // {{-----}}
// DIAGNOSTICS-NEXT: {{.*}}errors.mlir:{{[0-9]+}}:38
// DIAGNOSTICS: strides of dimension 0 is -1, which is negative
// DIAGNOSTICS: // {{-----}}
// DIAGNOSTICS-NEXT: builtin.module {
// DIAGNOSTICS-NEXT: vllm_ir.func @good

vllm_ir.func @bad(%x: tensor<4x8xf16>) -> (tensor<4x8xf16>) {
  %y = vllm_ir.rms_norm %x : tensor<4x8xf16> {epsilon = 1.0e-05 : f64, variance_size = 9 : i64} -> tensor<4x8xf16> loc("model.py":12:5)
  vllm_ir.return %y : tensor<4x8xf16>
}

// -----

vllm_ir.func @bad(%x: !vllm_ir.buffer<8xf16, strides = [-1]>) {
  vllm_ir.return none
}

// -----

vllm_ir.func @good() {
  vllm_ir.return none
}
