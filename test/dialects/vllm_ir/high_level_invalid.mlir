// RUN: vllm-ir-opt %s --verify-diagnostics --parsing-diagnostics --split-input-file | filecheck %s

%x = "test.op"() : () -> tensor<4x8xf16>
// CHECK: Operation does not verify: variance_size 9 is not in [1, 8], the last dimension of x
%y = vllm_ir.rms_norm %x : tensor<4x8xf16> {epsilon = 1.0e-05 : f64, variance_size = 9 : i64} -> tensor<4x8xf16>

// -----

%x = "test.op"() : () -> tensor<4x?xf16>
// CHECK: Operation does not verify: variance_size 0 is not in [1, ?], the last dimension of x
%y = vllm_ir.rms_norm %x : tensor<4x?xf16> {epsilon = 1.0e-05 : f64, variance_size = 0 : i64} -> tensor<4x?xf16>

// -----

%x = "test.op"() : () -> tensor<4x8xf16>
// CHECK: high_level_invalid.mlir:18:1
// CHECK: f32 should be of base attribute f64
%y = vllm_ir.rms_norm %x : tensor<4x8xf16> {epsilon = 1.0e-05 : f32} -> tensor<4x8xf16>

// -----

%x = "test.op"() : () -> tensor<4x8xi32>
// CHECK: Operation does not verify: x has element type i32, which is not floating-point
%y = vllm_ir.rms_norm %x : tensor<4x8xi32> {epsilon = 1.0e-05 : f64} -> tensor<4x8xi32>

// -----

%x, %w = "test.op"() : () -> (tensor<4x8xf16>, tensor<8xi8>)
// CHECK: Operation does not verify: weight has element type i8, which is not floating-point
%y = vllm_ir.rms_norm %x : tensor<4x8xf16> weight %w : tensor<8xi8> {epsilon = 1.0e-05 : f64} -> tensor<4x8xf16>

// -----

%x = "test.op"() : () -> tensor<f16>
// CHECK: Operation does not verify: x is a scalar, the norm needs a last dimension
%y = vllm_ir.rms_norm %x : tensor<f16> {epsilon = 1.0e-05 : f64} -> tensor<f16>

// -----

%x = "test.op"() : () -> tensor<4x8xf16>
// CHECK: Operation does not verify: result has shape 8x4, x 4x8
%y = vllm_ir.rms_norm %x : tensor<4x8xf16> {epsilon = 1.0e-05 : f64} -> tensor<8x4xf16>

// -----

%x = "test.op"() : () -> tensor<4x8xf16>
// CHECK: Operation does not verify: donated names operand 1 of 1
%y = vllm_ir.rms_norm %x : tensor<4x8xf16> {epsilon = 1.0e-05 : f64, donated = array<i64: 1>} -> tensor<4x8xf16>

// -----

%x = "test.op"() : () -> tensor<4x8xf16>
// CHECK: Operation does not verify: donated names %x twice
%y = vllm_ir.rms_norm %x : tensor<4x8xf16> {epsilon = 1.0e-05 : f64, donated = array<i64: 0, 0>} -> tensor<4x8xf16>

// -----

%x, %w = "test.op"() : () -> (tensor<4x8xf16>, tensor<8xf16, #vllm_ir.layout<device = "cuda:0">>)
// CHECK: Operation does not verify: %w is on cuda:0, %x on cpu
%y = vllm_ir.rms_norm %x : tensor<4x8xf16> weight %w : tensor<8xf16, #vllm_ir.layout<device = "cuda:0">> {epsilon = 1.0e-05 : f64} -> tensor<4x8xf16>

// -----

%x, %r = "test.op"() : () -> (tensor<4x8xf16>, tensor<8xf16>)
// CHECK: Operation does not verify: x_residual has shape 8, x 4x8
%y, %z = vllm_ir.fused_add_rms_norm %x, %r : tensor<4x8xf16>, tensor<8xf16> {epsilon = 1.0e-05 : f64} -> tensor<4x8xf16>, tensor<4x8xf16>

// -----

%x = "test.op"() : () -> tensor<4x8xf16>
// CHECK: Operation does not verify: normed has shape 4x9, x 4x8
%y, %z = vllm_ir.fused_add_rms_norm %x, %x : tensor<4x8xf16>, tensor<4x8xf16> {epsilon = 1.0e-05 : f64} -> tensor<4x9xf16>, tensor<4x8xf16>

// -----

%x = "test.op"() : () -> tensor<4x8xf16>
// CHECK: Operation does not verify: residual has shape scalar, x 4x8
%y, %z = vllm_ir.fused_add_rms_norm %x, %x : tensor<4x8xf16>, tensor<4x8xf16> {epsilon = 1.0e-05 : f64} -> tensor<4x8xf16>, tensor<f16>

// -----

%x = "test.op"() : () -> tensor<4x7xf16>
// CHECK: Operation does not verify: the last dimension of x is 7, which is odd
%y = vllm_ir.silu_and_mul %x : tensor<4x7xf16> -> tensor<4x3xf16>

// -----

%x = "test.op"() : () -> tensor<f16>
// CHECK: Operation does not verify: x is a scalar, its last dimension must be split in halves
%y = vllm_ir.silu_and_mul %x : tensor<f16> -> tensor<f16>

// -----

%x = "test.op"() : () -> tensor<4x8xf16>
// CHECK: Operation does not verify: result has shape 4x8, the half of x 4x4
%y = vllm_ir.silu_and_mul %x : tensor<4x8xf16> -> tensor<4x8xf16>

// -----

%x = "test.op"() : () -> tensor<4x?xf16>
// CHECK: Operation does not verify: result has shape 5x?, the half of x 4x?
%y = vllm_ir.silu_and_mul %x : tensor<4x?xf16> -> tensor<5x?xf16>

// -----

%x = "test.op"() : () -> tensor<4x8xf16>
// CHECK: Operation does not verify: result has element type f32, x f16
%y = vllm_ir.silu_and_mul %x : tensor<4x8xf16> -> tensor<4x4xf32>

// -----

%x = "test.op"() : () -> tensor<4x8xf16>
// CHECK: Operation does not verify: approximate is "erf", which is neither "none" nor "tanh"
%y = vllm_ir.gelu_and_mul %x {approximate = "erf"} : tensor<4x8xf16> -> tensor<4x4xf16>

// -----

%x = "test.op"() : () -> tensor<4x8xf16>
// CHECK: property 'approximate'
%y = vllm_ir.gelu_and_mul %x : tensor<4x8xf16> -> tensor<4x4xf16>

// -----

%x = "test.op"() : () -> tensor<4x8xf16>
// CHECK: Operation does not verify: result has shape 4x8, the half of x 4x4
%y = vllm_ir.gelu_and_mul %x {approximate = "tanh"} : tensor<4x8xf16> -> tensor<4x8xf16>

// -----

%p, %q, %c = "test.op"() : () -> (tensor<4xf32>, tensor<4x32xf32>, tensor<64x8xf32>)
// CHECK: Operation does not verify: positions has element type f32, which is not an integer
%e, %f = vllm_ir.rotary_embedding %p, %q, %q, %c {head_size = 8 : i64, is_neox = true} : tensor<4xf32>, tensor<4x32xf32>, tensor<4x32xf32>, tensor<64x8xf32> -> tensor<4x32xf32>, tensor<4x32xf32>

// -----

%p, %q, %c = "test.op"() : () -> (tensor<4xi64>, tensor<4x32xf32>, tensor<64x8xf32>)
// CHECK: Operation does not verify: head_size 0 is not positive
%e, %f = vllm_ir.rotary_embedding %p, %q, %q, %c {head_size = 0 : i64, is_neox = true} : tensor<4xi64>, tensor<4x32xf32>, tensor<4x32xf32>, tensor<64x8xf32> -> tensor<4x32xf32>, tensor<4x32xf32>

// -----

%p, %q, %c = "test.op"() : () -> (tensor<4xi64>, tensor<4x32xf32>, tensor<64x8xf32>)
// CHECK: Operation does not verify: rotary_dim 9 is not in [2, 8], the head size
%e, %f = vllm_ir.rotary_embedding %p, %q, %q, %c {head_size = 8 : i64, is_neox = true, rotary_dim = 9 : i64} : tensor<4xi64>, tensor<4x32xf32>, tensor<4x32xf32>, tensor<64x8xf32> -> tensor<4x32xf32>, tensor<4x32xf32>

// -----

%p, %q, %c = "test.op"() : () -> (tensor<4xi64>, tensor<4x32xf32>, tensor<64x8xf32>)
// CHECK: Operation does not verify: rotated_key has shape 4x16, key 4x32
%e, %f = vllm_ir.rotary_embedding %p, %q, %q, %c {head_size = 8 : i64, is_neox = true} : tensor<4xi64>, tensor<4x32xf32>, tensor<4x32xf32>, tensor<64x8xf32> -> tensor<4x32xf32>, tensor<4x16xf32>
