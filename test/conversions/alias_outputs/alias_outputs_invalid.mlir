// RUN: vllm-ir-opt %s -p alias-outputs --split-input-file --verify-diagnostics | filecheck %s

// CHECK: vllm_ir.func: @main is functional already; run alias-outputs before functionalize
vllm_ir.func functional @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  vllm_ir.return %x : tensor<4xf32>
}

// -----

// CHECK: vllm_ir.return: argument 0 gets a window of dynamic size: !vllm_ir.buffer<?xf32, sizes = ["s0"]>
vllm_ir.func @main(%x: !vllm_ir.buffer<?xf32, sizes = ["s0"]> {vllm_ir.mutated, vllm_ir.window = !vllm_ir.buffer<?xf32, sizes = ["s0"]>}) {
  vllm_ir.return ()
}
