// RUN: vllm-ir-opt %s -p 'fuse{only=add_rms_norm_pad,add_rms_norm_pad_router explain=true}' --split-input-file | filecheck %s

// The router reads the first columns of the padded rows; sizes are any.
// CHECK: vllm_ir.fused = {add_rms_norm_pad_router = ["%{{[a-z_0-9]+}}"]}
// CHECK-LABEL: @router(
// CHECK-NEXT: %t = torch.call @aten.t.default(%m)
// CHECK-NEXT: %p, %s = "vllm_ir.fused_add_rms_norm_pad"(%x, %r, %w) <{epsilon = 1.000000e-05 : f64, padding = 5 : i64
// CHECK-NEXT: %[[ROWS:.*]] = torch.call @aten.slice.Tensor(%p, 1, 0, 7, 1)
// CHECK-NEXT: %l = torch.call @aten.addmm.default(%b, %[[ROWS]], %t, beta = 1, alpha = 1)
// CHECK-NEXT: vllm_ir.return (%p, %s, %l)
vllm_ir.func functional @router(%x: tensor<3x7xbf16>, %r: tensor<3x7xbf16>, %w: tensor<7xbf16>, %m: tensor<4x7xbf16>, %b: tensor<4xbf16>) -> (tensor<3x12xbf16>, tensor<3x7xbf16>, tensor<3x4xbf16>) {
  %n, %s = vllm_ir.fused_add_rms_norm %x, %r : tensor<3x7xbf16>, tensor<3x7xbf16> weight %w : tensor<7xbf16> {epsilon = 1.0e-05 : f64} -> tensor<3x7xbf16>, tensor<3x7xbf16>
  %t = torch.call @aten.t.default(%m) : (tensor<4x7xbf16>) -> tensor<7x4xbf16, #vllm_ir.layout<strides = [1, 7]>>
  %l = torch.call @aten.addmm.default(%b, %n, %t, beta = 1, alpha = 1) : (tensor<4xbf16>, tensor<3x7xbf16>, tensor<7x4xbf16, #vllm_ir.layout<strides = [1, 7]>>) -> tensor<3x4xbf16>
  %p = torch.call @aten.constant_pad_nd.default(%n, [0, 5], 0.0) : (tensor<3x7xbf16>) -> tensor<3x12xbf16>
  vllm_ir.return (%p, %s, %l) : tensor<3x12xbf16>, tensor<3x7xbf16>, tensor<3x4xbf16>
}

// -----

// Without a router, and with the number as the operator's default has it.
// CHECK: vllm_ir.fused = {add_rms_norm_pad = ["%{{[a-z_0-9]+}}"]}
// CHECK-LABEL: @alone(
// CHECK-NEXT: %p, %s = "vllm_ir.fused_add_rms_norm_pad"(%x, %r) <{epsilon = 1.000000e-05 : f64, padding = 2 : i64
// CHECK-NEXT: vllm_ir.return %p
vllm_ir.func functional @alone(%x: tensor<3x7xf32>, %r: tensor<3x7xf32>) -> tensor<3x9xf32> {
  %n, %s = vllm_ir.fused_add_rms_norm %x, %r : tensor<3x7xf32>, tensor<3x7xf32> {epsilon = 1.0e-05 : f64} -> tensor<3x7xf32>, tensor<3x7xf32>
  %p = torch.call @aten.constant_pad_nd.default(%n, [0, 2], 0) : (tensor<3x7xf32>) -> tensor<3x9xf32>
  vllm_ir.return %p : tensor<3x9xf32>
}

// -----

// Padding of ones.
// CHECK-NOT: vllm_ir.fused =
// CHECK: add_rms_norm_pad = ["%p: @aten.constant_pad_nd.default: argument 2 is 1
// CHECK-LABEL: @ones(
// CHECK-NOT: fused_add_rms_norm_pad
// CHECK: vllm_ir.return
vllm_ir.func functional @ones(%x: tensor<3x7xf32>, %r: tensor<3x7xf32>) -> tensor<3x9xf32> {
  %n, %s = vllm_ir.fused_add_rms_norm %x, %r : tensor<3x7xf32>, tensor<3x7xf32> {epsilon = 1.0e-05 : f64} -> tensor<3x7xf32>, tensor<3x7xf32>
  %p = torch.call @aten.constant_pad_nd.default(%n, [0, 2], 1.0) : (tensor<3x7xf32>) -> tensor<3x9xf32>
  vllm_ir.return %p : tensor<3x9xf32>
}

// -----

// Rows get shorter.
// CHECK-NOT: vllm_ir.fused =
// CHECK: add_rms_norm_pad = ["%p: @aten.constant_pad_nd.default: after does not take operands of these types: {{.*}}padding must not be negative, got -2
// CHECK-LABEL: @shorter(
// CHECK-NOT: fused_add_rms_norm_pad
// CHECK: vllm_ir.return
vllm_ir.func functional @shorter(%x: tensor<3x7xf32>, %r: tensor<3x7xf32>) -> tensor<3x5xf32> {
  %n, %s = vllm_ir.fused_add_rms_norm %x, %r : tensor<3x7xf32>, tensor<3x7xf32> {epsilon = 1.0e-05 : f64} -> tensor<3x7xf32>, tensor<3x7xf32>
  %p = torch.call @aten.constant_pad_nd.default(%n, [0, -2], 0.0) : (tensor<3x7xf32>) -> tensor<3x5xf32>
  vllm_ir.return %p : tensor<3x5xf32>
}

// -----

// Something else than a product reads the norm.
// CHECK-NOT: vllm_ir.fused =
// CHECK: %n is also used by %l
// CHECK-LABEL: @other_reader(
// CHECK-NOT: fused_add_rms_norm_pad
// CHECK: vllm_ir.return
vllm_ir.func functional @other_reader(%x: tensor<3x7xf32>, %r: tensor<3x7xf32>) -> (tensor<3x9xf32>, tensor<3x7xf32>) {
  %n, %s = vllm_ir.fused_add_rms_norm %x, %r : tensor<3x7xf32>, tensor<3x7xf32> {epsilon = 1.0e-05 : f64} -> tensor<3x7xf32>, tensor<3x7xf32>
  %p = torch.call @aten.constant_pad_nd.default(%n, [0, 2], 0.0) : (tensor<3x7xf32>) -> tensor<3x9xf32>
  %l = torch.call @aten.relu.default(%n) : (tensor<3x7xf32>) -> tensor<3x7xf32>
  vllm_ir.return (%p, %l) : tensor<3x9xf32>, tensor<3x7xf32>
}
