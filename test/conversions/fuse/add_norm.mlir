// RUN: vllm-ir-opt %s -p 'fuse{only=add_rms_norm explain=true}' --split-input-file | filecheck %s
// RUN: vllm-ir-opt %s -p 'fuse{only=add_rms_norm numerics=exact}' --split-input-file | filecheck %s --check-prefix EXACT
// RUN: vllm-ir-opt %s -p 'fuse{only=add_rms_norm limit=1}' --split-input-file | filecheck %s --check-prefix LIMIT

// Either order of the sum, any epsilon, and the sum goes on to be used: by what comes before the norm, too.
// CHECK: vllm_ir.fused = {add_rms_norm = ["%a", "%b"]}
// CHECK-LABEL: @main
// CHECK-NEXT: %a, %s = vllm_ir.fused_add_rms_norm %x, %r {{.*}}weight %w {{.*}}{epsilon = 1.230000e-08 : f64}
// CHECK-NEXT: %early = torch.call @aten.relu.default(%s)
// CHECK-NEXT: %b, %t = vllm_ir.fused_add_rms_norm %early, %a
// CHECK-NEXT: vllm_ir.return (%b, %t, %early)
// LIMIT: vllm_ir.fused = {add_rms_norm = ["%a"]}
// LIMIT: vllm_ir.fused_add_rms_norm
// LIMIT: vllm_ir.rms_norm
vllm_ir.func functional @main(%x: tensor<3x8xf32>, %r: tensor<3x8xf32>, %w: tensor<8xf32>) -> (tensor<3x8xf32>, tensor<3x8xf32>, tensor<3x8xf32>) {
  %s = torch.call @aten.add.Tensor(%x, %r, alpha = 1) : (tensor<3x8xf32>, tensor<3x8xf32>) -> tensor<3x8xf32>
  %early = torch.call @aten.relu.default(%s) : (tensor<3x8xf32>) -> tensor<3x8xf32>
  %a = vllm_ir.rms_norm %s : tensor<3x8xf32> weight %w : tensor<8xf32> {epsilon = 1.23e-08 : f64} -> tensor<3x8xf32>
  %t = torch.call @aten.add.Tensor(%early, %a, alpha = 1) : (tensor<3x8xf32>, tensor<3x8xf32>) -> tensor<3x8xf32>
  %b = vllm_ir.rms_norm %t : tensor<3x8xf32> {epsilon = 1.0e-05 : f64} -> tensor<3x8xf32>
  vllm_ir.return (%b, %t, %early) : tensor<3x8xf32>, tensor<3x8xf32>, tensor<3x8xf32>
}

// -----

// The sum is rounded to bfloat16 in the program and not in the fused operation: that is for those who allow it.
// CHECK: vllm_ir.fused_add_rms_norm
// EXACT-LABEL: @rounded
// EXACT-NOT: vllm_ir.fused_add_rms_norm
// EXACT: vllm_ir.rms_norm
vllm_ir.func functional @rounded(%x: tensor<3x8xbf16>, %r: tensor<3x8xbf16>) -> tensor<3x8xbf16> {
  %s = torch.call @aten.add.Tensor(%x, %r, alpha = 1) : (tensor<3x8xbf16>, tensor<3x8xbf16>) -> tensor<3x8xbf16>
  %a = vllm_ir.rms_norm %s : tensor<3x8xbf16> {epsilon = 1.0e-05 : f64} -> tensor<3x8xbf16>
  vllm_ir.return %a : tensor<3x8xbf16>
}

// -----

// A bias of one row is no residual.
// CHECK: vllm_ir.unfused = {add_rms_norm = ["%a: vllm_ir.rms_norm: after does not take operands of these types: {{.*}}x_residual must be floating of shape [3, 8]
// CHECK-LABEL: @bias
// CHECK-NOT: vllm_ir.fused_add_rms_norm
// CHECK: vllm_ir.return
vllm_ir.func functional @bias(%x: tensor<3x8xf32>, %r: tensor<8xf32>) -> tensor<3x8xf32> {
  %s = torch.call @aten.add.Tensor(%x, %r, alpha = 1) : (tensor<3x8xf32>, tensor<8xf32>) -> tensor<3x8xf32>
  %a = vllm_ir.rms_norm %s : tensor<3x8xf32> {epsilon = 1.0e-05 : f64} -> tensor<3x8xf32>
  vllm_ir.return %a : tensor<3x8xf32>
}

// -----

// A float32 residual makes float32 results; the fused operation would give bfloat16.
// CHECK: vllm_ir.unfused = {add_rms_norm = ["%a: vllm_ir.rms_norm: result 0 is tensor<3x8xf32> before, tensor<3x8xbf16> after"]}
// CHECK-NOT: vllm_ir.fused_add_rms_norm
// CHECK: vllm_ir.return
vllm_ir.func functional @mixed(%x: tensor<3x8xbf16>, %r: tensor<3x8xf32>) -> tensor<3x8xf32> {
  %s = torch.call @aten.add.Tensor(%x, %r, alpha = 1) : (tensor<3x8xbf16>, tensor<3x8xf32>) -> tensor<3x8xf32>
  %a = vllm_ir.rms_norm %s : tensor<3x8xf32> {epsilon = 1.0e-05 : f64} -> tensor<3x8xf32>
  vllm_ir.return %a : tensor<3x8xf32>
}

// -----

// x + 2 r
// CHECK: vllm_ir.unfused = {add_rms_norm = ["%s: @aten.add.Tensor: argument 2 is 2, the pattern has 1"]}
// CHECK-NOT: vllm_ir.fused_add_rms_norm
// CHECK: vllm_ir.return
vllm_ir.func functional @scaled(%x: tensor<3x8xf32>, %r: tensor<3x8xf32>) -> tensor<3x8xf32> {
  %s = torch.call @aten.add.Tensor(%x, %r, alpha = 2) : (tensor<3x8xf32>, tensor<3x8xf32>) -> tensor<3x8xf32>
  %a = vllm_ir.rms_norm %s : tensor<3x8xf32> {epsilon = 1.0e-05 : f64} -> tensor<3x8xf32>
  vllm_ir.return %a : tensor<3x8xf32>
}

// -----

// The weight depends on the sum.
// CHECK: vllm_ir.unfused = {add_rms_norm = ["%w: @aten.mean.dim: %w depends on a result of the fused operations"]}
// CHECK-NOT: vllm_ir.fused_add_rms_norm
// CHECK: vllm_ir.return
vllm_ir.func functional @circle(%x: tensor<3x8xf32>, %r: tensor<3x8xf32>) -> tensor<3x8xf32> {
  %s = torch.call @aten.add.Tensor(%x, %r, alpha = 1) : (tensor<3x8xf32>, tensor<3x8xf32>) -> tensor<3x8xf32>
  %w = torch.call @aten.mean.dim(%s, [0], false, dtype = none) : (tensor<3x8xf32>) -> tensor<8xf32>
  %a = vllm_ir.rms_norm %s : tensor<3x8xf32> weight %w : tensor<8xf32> {epsilon = 1.0e-05 : f64} -> tensor<3x8xf32>
  vllm_ir.return %a : tensor<3x8xf32>
}

// -----

// What draws random numbers does not move behind another operation that does.
// CHECK: vllm_ir.unfused = {add_rms_norm = ["%noise: @aten.rand_like.default: it uses a result, comes before the last operand, and cannot move"]}
// CHECK-NOT: vllm_ir.fused_add_rms_norm
// CHECK: vllm_ir.return
vllm_ir.func functional @random(%x: tensor<3x8xf32>, %r: tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<3x8xf32>) {
  %s = torch.call @aten.add.Tensor(%x, %r, alpha = 1) : (tensor<3x8xf32>, tensor<3x8xf32>) -> tensor<3x8xf32>
  %noise = torch.call @aten.rand_like.default(%s, dtype = none, layout = none, device = none, pin_memory = none, memory_format = none) random : (tensor<3x8xf32>) -> tensor<3x8xf32>
  %a = vllm_ir.rms_norm %s : tensor<3x8xf32> {epsilon = 1.0e-05 : f64} -> tensor<3x8xf32>
  vllm_ir.return (%a, %noise) : tensor<3x8xf32>, tensor<3x8xf32>
}

// -----

// Sizes that are symbols.
// CHECK: %a, %s = vllm_ir.fused_add_rms_norm %x, %r : tensor<?x8xf32, #vllm_ir.layout<sizes = ["s0", 8]>>
vllm_ir.func functional @symbols(%s0: i64 {vllm_ir.symbol = "s0"}, %x: tensor<?x8xf32, #vllm_ir.layout<sizes = ["s0", 8]>>, %r: tensor<?x8xf32, #vllm_ir.layout<sizes = ["s0", 8]>>) -> tensor<?x8xf32, #vllm_ir.layout<sizes = ["s0", 8]>> {
  %s = torch.call @aten.add.Tensor(%x, %r, alpha = 1) : (tensor<?x8xf32, #vllm_ir.layout<sizes = ["s0", 8]>>, tensor<?x8xf32, #vllm_ir.layout<sizes = ["s0", 8]>>) -> tensor<?x8xf32, #vllm_ir.layout<sizes = ["s0", 8]>>
  %a = vllm_ir.rms_norm %s : tensor<?x8xf32, #vllm_ir.layout<sizes = ["s0", 8]>> {epsilon = 1.0e-05 : f64} -> tensor<?x8xf32, #vllm_ir.layout<sizes = ["s0", 8]>>
  vllm_ir.return %a : tensor<?x8xf32, #vllm_ir.layout<sizes = ["s0", 8]>>
}

// -----

// Memory is not fused: what is not functional stays as it is.
// CHECK-LABEL: @memory
// CHECK-NOT: vllm_ir.fused_add_rms_norm
// CHECK: vllm_ir.return
vllm_ir.func @memory(%x: !vllm_ir.buffer<3x8xf32>, %r: tensor<3x8xf32>) -> tensor<3x8xf32> {
  %s = torch.call @aten.add.Tensor(%x, %r, alpha = 1) reads(%x) : (!vllm_ir.buffer<3x8xf32>, tensor<3x8xf32>) -> tensor<3x8xf32>
  %a = vllm_ir.rms_norm %s : tensor<3x8xf32> {epsilon = 1.0e-05 : f64} -> tensor<3x8xf32>
  vllm_ir.return %a : tensor<3x8xf32>
}
