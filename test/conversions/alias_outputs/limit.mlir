// RUN: vllm-ir-opt %s -p 'alias-outputs{limit=1}' | filecheck %s

// Functions are marked one by one, each as a whole.
// CHECK-LABEL: vllm_ir.func @first({{.*}} attributes {vllm_ir.original_output_count = 0 : i64} {
// CHECK: vllm_ir.return (%x) : !vllm_ir.buffer<4xf32>
// CHECK-LABEL: vllm_ir.func @second(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}) {
// CHECK: vllm_ir.return ()

vllm_ir.func @first(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}) {
  %zero = torch.call @aten.zero_.default(%x) reads(%x) writes(%x) returns [0] : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<4xf32>
  vllm_ir.return ()
}
vllm_ir.func @second(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}) {
  %zero = torch.call @aten.zero_.default(%x) reads(%x) writes(%x) returns [0] : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<4xf32>
  vllm_ir.return ()
}
