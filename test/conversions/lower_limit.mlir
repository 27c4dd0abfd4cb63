// RUN: vllm-ir-opt %s -p 'lower{limit=1}' | filecheck %s

// CHECK: builtin.module attributes {vllm_ir.selected = {rms_norm = {first = "native"}}} {
// CHECK: torch.call @aten.rsqrt.default
// CHECK: %second = vllm_ir.rms_norm %{{.*}} : tensor<4x8xf32> weight %w : tensor<8xf32>
// CHECK-NEXT: vllm_ir.return %second : tensor<4x8xf32>

vllm_ir.func functional @main(%x: tensor<4x8xf32>, %w: tensor<8xf32>) -> tensor<4x8xf32> {
  %first = vllm_ir.rms_norm %x : tensor<4x8xf32> weight %w : tensor<8xf32> {epsilon = 1.0e-05 : f64} -> tensor<4x8xf32>
  %second = vllm_ir.rms_norm %first : tensor<4x8xf32> weight %w : tensor<8xf32> {epsilon = 1.0e-05 : f64} -> tensor<4x8xf32>
  vllm_ir.return %second : tensor<4x8xf32>
}
