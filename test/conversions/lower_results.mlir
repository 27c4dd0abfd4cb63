// A provider whose results have another type than the op is passed over, with the reason.

// RUN: vllm-ir-opt %s --load %S/lower_providers.py -p lower --ir-op-priority.rms_norm=wide --split-input-file --verify-diagnostics | filecheck %s

// CHECK: builtin.module attributes {vllm_ir.selected = {rms_norm = {narrow = "native", doubled = "wide"}}, vllm_ir.rejected = {rms_norm = {narrow = {wide = "returns tensor<4x8xf64>, the op gives tensor<4x8xf32>"}}}} {
vllm_ir.func functional @main(%x: tensor<4x8xf32>, %y: tensor<4x8xf64>) -> (tensor<4x8xf32>, tensor<4x8xf64>) {
  // Nothing of the rejected trace is left.
  // CHECK-NEXT: vllm_ir.func functional @main{{.*}} {
  // CHECK-NOT: f64
  // CHECK: torch.call @aten.mul.Tensor(%x,
  // CHECK-NEXT: torch.call @aten._to_copy.default(%y, dtype = f32
  %narrow = vllm_ir.rms_norm %x : tensor<4x8xf32> {epsilon = 1.0e-05 : f64} -> tensor<4x8xf32>
  %doubled = vllm_ir.rms_norm %y : tensor<4x8xf64> {epsilon = 1.0e-05 : f64} -> tensor<4x8xf64>
  vllm_ir.return (%narrow, %doubled) : tensor<4x8xf32>, tensor<4x8xf64>
}

// -----

// CHECK: vllm_ir.rms_norm: no provider is left: 'wide': returns tensor<4x8xf64>, the op gives tensor<4x8xbf16>; 'native': returns tensor<4x8xf32>, the op gives tensor<4x8xbf16>
vllm_ir.func functional @main(%x: tensor<4x8xbf16>, %w: tensor<8xf32>) -> tensor<4x8xbf16> {
  %normed = vllm_ir.rms_norm %x : tensor<4x8xbf16> weight %w : tensor<8xf32> {epsilon = 1.0e-05 : f64} -> tensor<4x8xbf16>
  vllm_ir.return %normed : tensor<4x8xbf16>
}
