// RUN: vllm-ir-opt %s -p lower | filecheck %s

// CHECK: builtin.module attributes {vllm_ir.selected = {rms_norm = {normed = "native"}}} {
// CHECK-NEXT: vllm_ir.func functional @main
vllm_ir.func functional @main(%x: tensor<4x8xbf16>, %w: tensor<8xf32>) -> tensor<4x8xf32> {
  // The norm is computed in float32, rounded to bf16, and only then multiplied by the weight.
  // CHECK-NOT: vllm_ir.rms_norm
  // CHECK: torch.call @aten._to_copy.default(%x, dtype = f32
  // CHECK: torch.call @aten.mean.dim(
  // CHECK: torch.call @aten.rsqrt.default(
  // CHECK: torch.call @aten._to_copy.default({{.*}}, dtype = bf16
  // CHECK-NEXT: torch.call @aten.mul.Tensor({{.*}}, %w) : (tensor<4x8xbf16>, tensor<8xf32>) -> tensor<4x8xf32>
  // CHECK-NEXT: vllm_ir.return
  %normed = vllm_ir.rms_norm %x : tensor<4x8xbf16> weight %w : tensor<8xf32> {epsilon = 1.0e-05 : f64} -> tensor<4x8xf32>
  vllm_ir.return %normed : tensor<4x8xf32>
}
