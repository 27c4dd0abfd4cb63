// The targets of functional devices; the input may be at any level.

// RUN: vllm-ir-opt %s -t stablehlo | filecheck %s
// CHECK: func.func public @main(%arg0: tensor<3x4xf32> {tf.aliasing_output = 0 : i32}, %arg1: tensor<4xf32>) -> tensor<3x4xf32> {
// CHECK: stablehlo.dynamic_update_slice

// RUN: vllm-ir-opt %s -p alias-outputs,functionalize,convert-to-stablehlo -t 'stablehlo{alias="must"}' | filecheck %s --check-prefix MUST
// MUST: module attributes {mhlo.input_output_alias = [{alias = {kind = "must_alias", parameter_index = array<i64>, parameter_number = 0 : i64}, output_index = array<i64>}]}

// Binary targets write bytes, and jaxlib reads them; test_stablehlo.py has the others.
// RUN: vllm-ir-opt %s -t vhlo > %t.vhlo
// RUN: %python -c "from vllm_ir.backends.stablehlo import jaxlib_calls as j, translate as t; print(j.stablehlo().deserialize_portable_artifact(t.context(), open(r'%t.vhlo', 'rb').read()))" | filecheck %s

// RUN: not vllm-ir-opt %s -t 'stablehlo{alias="maybe"}' 2>&1 | filecheck %s --check-prefix ALIAS
// ALIAS: vllm-ir-opt: error: alias is 'maybe', it takes 'may', 'must', 'none'

vllm_ir.func @main(%kv: !vllm_ir.buffer<3x4xf32> {vllm_ir.mutated}, %x: tensor<4xf32>) {
  %row = vllm_ir.view @aten.select.int(%kv, 0, 1) : (!vllm_ir.buffer<3x4xf32>) -> !vllm_ir.buffer<4xf32, offset = 4>
  vllm_ir.write %x, %row : tensor<4xf32>, !vllm_ir.buffer<4xf32, offset = 4>
  vllm_ir.return ()
}
