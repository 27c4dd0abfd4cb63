// RUN: vllm-ir-opt %s --verify-diagnostics --parsing-diagnostics --split-input-file | filecheck %s

%b = "test.op"() : () -> !vllm_ir.buffer<4xf32>
// CHECK: Operation does not verify: %t has shape 3, the buffer %b 4
%t = vllm_ir.read %b : !vllm_ir.buffer<4xf32> -> tensor<3xf32>

// -----

%b = "test.op"() : () -> !vllm_ir.buffer<?xf32>
// CHECK: Operation does not verify: %t has shape scalar, the buffer %b ?
%t = vllm_ir.read %b : !vllm_ir.buffer<?xf32> -> tensor<f32>

// -----

%b = "test.op"() : () -> !vllm_ir.buffer<4xf32>
// CHECK: Operation does not verify: %t has element type f64, the buffer %b f32
%t = vllm_ir.read %b : !vllm_ir.buffer<4xf32> -> tensor<4xf64>

// -----

%0, %1 = "test.op"() : () -> (tensor<4xf32>, !vllm_ir.buffer<4xf32, device = "meta">)
// CHECK: Operation does not verify: result 0 of test.op is on cpu, the buffer result 1 of test.op on meta
vllm_ir.write %0, %1 : tensor<4xf32>, !vllm_ir.buffer<4xf32, device = "meta">

// -----

%v = "test.op"() : () -> tensor<4xf32>
// CHECK: Operation does not verify: %v has shape 4, the buffer %a 5
%a = vllm_ir.alloc %v : tensor<4xf32> -> !vllm_ir.buffer<5xf32>

// -----

%v = "test.op"() : () -> tensor<4xf32>
// CHECK: memory_invalid.mlir:36:1
// CHECK: tensor<4xf32> should be of base attribute vllm_ir.buffer
vllm_ir.write %v, %v : tensor<4xf32>, tensor<4xf32>

// -----

%b = "test.op"() : () -> !vllm_ir.buffer<4xf32>
// CHECK: Operation does not verify: the first argument of a view is 0 : i64, not its base, operand 0
%v = vllm_ir.view @aten.op(0, %b) : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<4xf32>

// -----

%x = "test.op"() : () -> tensor<4xf32>
// CHECK: Operation does not verify: the base %x has type tensor<4xf32>, which is not a buffer
%v = vllm_ir.view @aten.alias.default(%x) : (tensor<4xf32>) -> !vllm_ir.buffer<4xf32>

// -----

%b, %c = "test.op"() : () -> (!vllm_ir.buffer<4xf32>, !vllm_ir.buffer<4xf32>)
// CHECK: Operation does not verify: %c has type !vllm_ir.buffer<4xf32>, a view has one base
%v = vllm_ir.view @aten.op(%b, %c) : (!vllm_ir.buffer<4xf32>, !vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<4xf32>

// -----

%b = "test.op"() : () -> !vllm_ir.buffer<4xf32>
// CHECK: Operation does not verify: %w is on cuda:1, its base %b on cpu
%v, %w = vllm_ir.view @aten.split.Tensor(%b, 2) : (!vllm_ir.buffer<4xf32>) -> (!vllm_ir.buffer<2xf32>, !vllm_ir.buffer<2xf32, device = "cuda:1">)

// -----

%b = "test.op"() : () -> !vllm_ir.buffer<4xf32>
// CHECK: Operation does not verify: result 'views' at position 0 does not verify
%v = vllm_ir.view @aten.alias.default(%b) : (!vllm_ir.buffer<4xf32>) -> tensor<4xf32>
