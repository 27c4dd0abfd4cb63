// RUN: not vllm-ir-opt %s -p lower --ir-op-priority.rms_norm=nowhere,native 2>&1 | filecheck %s --check-prefix=PROVIDER
// RUN: not vllm-ir-opt %s -p lower --ir-op-priority.no_such_op=native 2>&1 | filecheck %s --check-prefix=OP
// RUN: vllm-ir-opt %s -p lower --ir-op-priority.rms_norm=native | filecheck %s

// PROVIDER: nowhere
// PROVIDER-SAME: native
// OP: no_such_op
// CHECK: rms_norm = {normed = "native"}
vllm_ir.func functional @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %normed = vllm_ir.rms_norm %x : tensor<4x8xf32> {epsilon = 1.0e-05 : f64} -> tensor<4x8xf32>
  vllm_ir.return %normed : tensor<4x8xf32>
}
