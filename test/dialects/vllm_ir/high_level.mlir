// RUN: vllm-ir-opt %s | vllm-ir-opt | filecheck %s
// RUN: vllm-ir-opt %s --print-op-generic | vllm-ir-opt | filecheck %s
// RUN: vllm-ir-opt %s --print-op-generic | filecheck %s --check-prefix GENERIC

// CHECK-LABEL: vllm_ir.func @norms
vllm_ir.func @norms(%x: tensor<4x8xbf16>, %r: tensor<4x8xbf16>, %w: tensor<8xf32>) -> () {
  // CHECK-NEXT: %a = vllm_ir.rms_norm %x : tensor<4x8xbf16> {epsilon = 1.000000e-05 : f64} -> tensor<4x8xbf16>
  // GENERIC: %a = "vllm_ir.rms_norm"(%x) <{epsilon = 1.000000e-05 : f64}> : (tensor<4x8xbf16>) -> tensor<4x8xbf16>
  %a = vllm_ir.rms_norm %x : tensor<4x8xbf16> {epsilon = 1.0e-05 : f64} -> tensor<4x8xbf16>
  // The epsilon is a double, to the last bit.
  // CHECK-NEXT: %b = vllm_ir.rms_norm %x : tensor<4x8xbf16> weight %w : tensor<8xf32> {epsilon = 0.12345678901234559 : f64, variance_size = 4 : i64, donated = array<i64: 0>} -> tensor<4x8xf32>
  %b = vllm_ir.rms_norm %x : tensor<4x8xbf16> weight %w : tensor<8xf32> {epsilon = 0.1234567890123456 : f64, variance_size = 4 : i64, donated = array<i64: 0>} -> tensor<4x8xf32>
  // CHECK-NEXT: %c, %d = vllm_ir.fused_add_rms_norm %x, %r : tensor<4x8xbf16>, tensor<4x8xbf16> {epsilon = 1.000000e-05 : f64} -> tensor<4x8xbf16>, tensor<4x8xbf16>
  %c, %d = vllm_ir.fused_add_rms_norm %x, %r : tensor<4x8xbf16>, tensor<4x8xbf16> {epsilon = 1.0e-05 : f64} -> tensor<4x8xbf16>, tensor<4x8xbf16>
  // CHECK-NEXT: %e, %f = vllm_ir.fused_add_rms_norm %x, %r : tensor<4x8xbf16>, tensor<4x8xbf16> weight %w : tensor<8xf32> {note = "kept", epsilon = 1.000000e-05 : f64, variance_size = 8 : i64, donated = array<i64: 0, 1>} -> tensor<4x8xf32>, tensor<4x8xbf16>
  // GENERIC: %e, %f = "vllm_ir.fused_add_rms_norm"(%x, %r, %w) <{epsilon = 1.000000e-05 : f64, variance_size = 8 : i64, donated = array<i64: 0, 1>}> {note = "kept"} : (tensor<4x8xbf16>, tensor<4x8xbf16>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4x8xbf16>)
  %e, %f = vllm_ir.fused_add_rms_norm %x, %r : tensor<4x8xbf16>, tensor<4x8xbf16> weight %w : tensor<8xf32> {epsilon = 1.0e-05 : f64, variance_size = 8 : i64, donated = array<i64: 0, 1>, note = "kept"} -> tensor<4x8xf32>, tensor<4x8xbf16>
  vllm_ir.return none
}

// CHECK-LABEL: vllm_ir.func @others
vllm_ir.func @others(%x: tensor<?x16xf16>, %b: !vllm_ir.buffer<2x?xf32>, %p: tensor<4xi64>, %c: tensor<64x8xf32>, %q: tensor<4x32xf32>) -> () {
  // CHECK-NEXT: %a = vllm_ir.silu_and_mul %x : tensor<?x16xf16> -> tensor<?x8xf16>
  %a = vllm_ir.silu_and_mul %x : tensor<?x16xf16> -> tensor<?x8xf16>
  // CHECK-NEXT: %d = vllm_ir.silu_and_mul %b {donated = array<i64: 0>} : !vllm_ir.buffer<2x?xf32> -> tensor<2x?xf32>
  %d = vllm_ir.silu_and_mul %b {donated = array<i64: 0>} : !vllm_ir.buffer<2x?xf32> -> tensor<2x?xf32>
  // CHECK-NEXT: %g = vllm_ir.gelu_and_mul %x {approximate = "none"} : tensor<?x16xf16> -> tensor<?x8xf16>
  // GENERIC: %g = "vllm_ir.gelu_and_mul"(%x) <{approximate = "none"}> : (tensor<?x16xf16>) -> tensor<?x8xf16>
  %g = vllm_ir.gelu_and_mul %x {approximate = "none"} : tensor<?x16xf16> -> tensor<?x8xf16>
  // CHECK-NEXT: %h = vllm_ir.gelu_and_mul %b {approximate = "tanh", donated = array<i64: 0>} : !vllm_ir.buffer<2x?xf32> -> tensor<2x?xf32>
  %h = vllm_ir.gelu_and_mul %b {approximate = "tanh", donated = array<i64: 0>} : !vllm_ir.buffer<2x?xf32> -> tensor<2x?xf32>
  // CHECK-NEXT: %e, %f = vllm_ir.rotary_embedding %p, %q, %q, %c {head_size = 8 : i64, is_neox = true, rotary_dim = 4 : i64} : tensor<4xi64>, tensor<4x32xf32>, tensor<4x32xf32>, tensor<64x8xf32> -> tensor<4x32xf32>, tensor<4x32xf32>
  // GENERIC: %e, %f = "vllm_ir.rotary_embedding"(%p, %q, %q, %c) <{head_size = 8 : i64, is_neox = true, rotary_dim = 4 : i64}>
  %e, %f = vllm_ir.rotary_embedding %p, %q, %q, %c {head_size = 8 : i64, is_neox = true, rotary_dim = 4 : i64} : tensor<4xi64>, tensor<4x32xf32>, tensor<4x32xf32>, tensor<64x8xf32> -> tensor<4x32xf32>, tensor<4x32xf32>
  vllm_ir.return none
}
