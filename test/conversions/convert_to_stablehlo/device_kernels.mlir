// RUN: vllm-ir-opt --load %S/declared_kernels.py -p alias-outputs,functionalize %s | filecheck %s --check-prefix=PURE
// RUN: vllm-ir-opt --load %S/declared_kernels.py -p alias-outputs,functionalize,convert-to-stablehlo %s | filecheck %s --check-prefix=HLO

// A kernel writes a layer of a stacked cache: its operand is read, its result is put back, and the whole is one output.

// PURE:      vllm_ir.func functional @main(%kv: tensor<2x4x8xf32>, %x: tensor<1x8xf32>) -> (tensor<2x4x8xf32> {vllm_ir.aliases = 0 : i64})
// PURE:      torch.call @aten.select.int(%kv, 0, 1)
// PURE-NEXT: torch.call @device_kernel.lit_write_ttf_0.default({{%[0-9]+}}, %x, 0.5, grid = [2], backend_config = none) updates [0]

// HLO:       func.func public @main(%kv: tensor<2x4x8xf32> {tf.aliasing_output = 0 : i32}, %x: tensor<1x8xf32>)
// HLO:       stablehlo.custom_call @AwsNeuronCustomNativeKernel({{%[0-9]+}}, %x) {backend_config = "{{[^"]+}}", output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []>]}
// HLO:       stablehlo.dynamic_update_slice
vllm_ir.func @main(%kv: !vllm_ir.buffer<2x4x8xf32> {vllm_ir.mutated}, %x: tensor<1x8xf32>) -> () {
  %layer = vllm_ir.view @aten.select.int(%kv, 0, 1) : (!vllm_ir.buffer<2x4x8xf32>) -> !vllm_ir.buffer<4x8xf32, offset = 32>
  torch.call @device_kernel.lit_write_ttf_0.default(%layer, %x, 0.5, grid = [2], backend_config = none) reads(%layer) writes(%layer) : (!vllm_ir.buffer<4x8xf32, offset = 32>, tensor<1x8xf32>) -> ()
  vllm_ir.return ()
}
