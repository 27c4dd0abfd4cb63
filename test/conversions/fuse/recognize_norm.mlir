// RUN: vllm-ir-opt %s -p 'fuse{only=recognize_rms_norm,recognize_rms_norm_without_weight,recognize_rms_norm_rounded_last,recognize_rms_norm_not_rounded,recognize_functional_rms_norm explain=true}' --split-input-file | filecheck %s

// CHECK: vllm_ir.fused = {recognize_rms_norm = ["%h"]}
// CHECK-LABEL: @llama(
// CHECK-NEXT: %h = vllm_ir.rms_norm %x{{.*}}{epsilon = 1.000000e-08 : f64}
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @llama(%x: tensor<3x16xbf16>, %w: tensor<16xbf16>) -> tensor<3x16xbf16> {
  %a = torch.call @aten._to_copy.default(%x, dtype = f32, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (tensor<3x16xbf16>) -> tensor<3x16xf32>
  %b = torch.call @aten.pow.Tensor_Scalar(%a, 2) : (tensor<3x16xf32>) -> tensor<3x16xf32>
  %c = torch.call @aten.mean.dim(%b, [-1], true, dtype = none) : (tensor<3x16xf32>) -> tensor<3x1xf32>
  %d = torch.call @aten.add.Tensor(%c, 1.0e-08, alpha = 1) : (tensor<3x1xf32>) -> tensor<3x1xf32>
  %e = torch.call @aten.rsqrt.default(%d) : (tensor<3x1xf32>) -> tensor<3x1xf32>
  %f = torch.call @aten.mul.Tensor(%a, %e) : (tensor<3x16xf32>, tensor<3x1xf32>) -> tensor<3x16xf32>
  %g = torch.call @aten._to_copy.default(%f, dtype = bf16, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (tensor<3x16xf32>) -> tensor<3x16xbf16>
  %h = torch.call @aten.mul.Tensor(%w, %g) : (tensor<16xbf16>, tensor<3x16xbf16>) -> tensor<3x16xbf16>
  vllm_ir.return %h : tensor<3x16xbf16>
}

// -----

// Gemma rounds behind the weight, which it adds to one.
// CHECK: vllm_ir.fused = {recognize_rms_norm_rounded_last = ["%j"]}
// CHECK-LABEL: @gemma(
// CHECK-NEXT: %g = torch.call @aten._to_copy.default(%w, dtype = f32, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none)
// CHECK-NEXT: %h = torch.call @aten.add.Tensor(%g, 1.0, alpha = 1)
// CHECK-NEXT: %j = torch.call @aten._to_copy.default(%x, dtype = f32, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none)
// CHECK-NEXT: %j_1 = vllm_ir.rms_norm %j{{.*}}{epsilon = 1.000000e-06 : f64}
// CHECK-NEXT: %j_2 = torch.call @aten._to_copy.default(%j_1, dtype = bf16, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none)
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @gemma(%x: tensor<3x16xbf16>, %w: tensor<16xbf16>) -> tensor<3x16xbf16> {
  %a = torch.call @aten._to_copy.default(%x, dtype = f32, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (tensor<3x16xbf16>) -> tensor<3x16xf32>
  %b = torch.call @aten.pow.Tensor_Scalar(%a, 2) : (tensor<3x16xf32>) -> tensor<3x16xf32>
  %c = torch.call @aten.mean.dim(%b, [-1], true, dtype = none) : (tensor<3x16xf32>) -> tensor<3x1xf32>
  %d = torch.call @aten.add.Tensor(%c, 1.0e-06, alpha = 1) : (tensor<3x1xf32>) -> tensor<3x1xf32>
  %e = torch.call @aten.rsqrt.default(%d) : (tensor<3x1xf32>) -> tensor<3x1xf32>
  %f = torch.call @aten.mul.Tensor(%a, %e) : (tensor<3x16xf32>, tensor<3x1xf32>) -> tensor<3x16xf32>
  %g = torch.call @aten._to_copy.default(%w, dtype = f32, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (tensor<16xbf16>) -> tensor<16xf32>
  %h = torch.call @aten.add.Tensor(%g, 1.0, alpha = 1) : (tensor<16xf32>) -> tensor<16xf32>
  %i = torch.call @aten.mul.Tensor(%f, %h) : (tensor<3x16xf32>, tensor<16xf32>) -> tensor<3x16xf32>
  %j = torch.call @aten._to_copy.default(%i, dtype = bf16, layout = #torch.layout<"strided">, device = #torch.device<"cpu">, pin_memory = none, non_blocking = false, memory_format = none) : (tensor<3x16xf32>) -> tensor<3x16xbf16>
  vllm_ir.return %j : tensor<3x16xbf16>
}

// -----

// CHECK: vllm_ir.fused = {recognize_functional_rms_norm = ["%f"]}
// CHECK-LABEL: @functional(
// CHECK-NEXT: %f = vllm_ir.rms_norm %x{{.*}}{epsilon = 9.9999999747524271e-07 : f64}
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @functional(%x: tensor<3x16xf32>, %w: tensor<16xf32>) -> tensor<3x16xf32> {
  %a = torch.call @aten.pow.Tensor_Scalar(%x, 2) : (tensor<3x16xf32>) -> tensor<3x16xf32>
  %b = torch.call @aten.mean.dim(%a, [1], true, dtype = none) : (tensor<3x16xf32>) -> tensor<3x1xf32>
  %c = torch.call @aten.add.Scalar(%b, 9.999999974752427e-07, 1) : (tensor<3x1xf32>) -> tensor<3x1xf32>
  %d = torch.call @aten.rsqrt.default(%c) : (tensor<3x1xf32>) -> tensor<3x1xf32>
  %e = torch.call @aten.mul.Tensor(%x, %d) : (tensor<3x16xf32>, tensor<3x1xf32>) -> tensor<3x16xf32>
  %f = torch.call @aten.mul.Tensor(%e, %w) : (tensor<3x16xf32>, tensor<16xf32>) -> tensor<3x16xf32>
  vllm_ir.return %f : tensor<3x16xf32>
}

// -----

// The mean is one of columns.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}@aten.mean.dim: result 0 is tensor<1x16xf32>, the pattern gives tensor<3x1xf32>
// CHECK-LABEL: @columns(
// CHECK-NOT: vllm_ir.rms_norm
// CHECK: vllm_ir.return
vllm_ir.func functional @columns(%x: tensor<3x16xbf16>, %w: tensor<16xbf16>) -> tensor<3x16xbf16> {
  %a = torch.call @aten._to_copy.default(%x, dtype = f32, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (tensor<3x16xbf16>) -> tensor<3x16xf32>
  %b = torch.call @aten.pow.Tensor_Scalar(%a, 2) : (tensor<3x16xf32>) -> tensor<3x16xf32>
  %c = torch.call @aten.mean.dim(%b, [0], true, dtype = none) : (tensor<3x16xf32>) -> tensor<1x16xf32>
  %d = torch.call @aten.add.Tensor(%c, 1.0e-06, alpha = 1) : (tensor<1x16xf32>) -> tensor<1x16xf32>
  %e = torch.call @aten.rsqrt.default(%d) : (tensor<1x16xf32>) -> tensor<1x16xf32>
  %f = torch.call @aten.mul.Tensor(%a, %e) : (tensor<3x16xf32>, tensor<1x16xf32>) -> tensor<3x16xf32>
  %g = torch.call @aten._to_copy.default(%f, dtype = bf16, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (tensor<3x16xf32>) -> tensor<3x16xbf16>
  %h = torch.call @aten.mul.Tensor(%w, %g) : (tensor<16xbf16>, tensor<3x16xbf16>) -> tensor<3x16xbf16>
  vllm_ir.return %h : tensor<3x16xbf16>
}

// -----

// The epsilon is added to the quotient.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}@aten.add.Tensor: aten.rsqrt.default is expected here
// CHECK-LABEL: @epsilon_outside(
// CHECK-NOT: vllm_ir.rms_norm
// CHECK: vllm_ir.return
vllm_ir.func functional @epsilon_outside(%x: tensor<3x16xbf16>, %w: tensor<16xbf16>) -> tensor<3x16xbf16> {
  %a = torch.call @aten._to_copy.default(%x, dtype = f32, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (tensor<3x16xbf16>) -> tensor<3x16xf32>
  %b = torch.call @aten.pow.Tensor_Scalar(%a, 2) : (tensor<3x16xf32>) -> tensor<3x16xf32>
  %c = torch.call @aten.mean.dim(%b, [-1], true, dtype = none) : (tensor<3x16xf32>) -> tensor<3x1xf32>
  %d = torch.call @aten.rsqrt.default(%c) : (tensor<3x1xf32>) -> tensor<3x1xf32>
  %e = torch.call @aten.add.Tensor(%d, 1.0e-06, alpha = 1) : (tensor<3x1xf32>) -> tensor<3x1xf32>
  %f = torch.call @aten.mul.Tensor(%a, %e) : (tensor<3x16xf32>, tensor<3x1xf32>) -> tensor<3x16xf32>
  %g = torch.call @aten._to_copy.default(%f, dtype = bf16, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (tensor<3x16xf32>) -> tensor<3x16xbf16>
  %h = torch.call @aten.mul.Tensor(%w, %g) : (tensor<16xbf16>, tensor<3x16xbf16>) -> tensor<3x16xbf16>
  vllm_ir.return %h : tensor<3x16xbf16>
}

// -----

// The scale is read as well.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}@aten.rsqrt.default: %e is also used by
// CHECK-LABEL: @scale_used(
// CHECK-NOT: vllm_ir.rms_norm
// CHECK: vllm_ir.return
vllm_ir.func functional @scale_used(%x: tensor<3x16xbf16>, %w: tensor<16xbf16>) -> (tensor<3x16xbf16>, tensor<3x1xf32>) {
  %a = torch.call @aten._to_copy.default(%x, dtype = f32, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (tensor<3x16xbf16>) -> tensor<3x16xf32>
  %b = torch.call @aten.pow.Tensor_Scalar(%a, 2) : (tensor<3x16xf32>) -> tensor<3x16xf32>
  %c = torch.call @aten.mean.dim(%b, [-1], true, dtype = none) : (tensor<3x16xf32>) -> tensor<3x1xf32>
  %d = torch.call @aten.add.Tensor(%c, 1.0e-06, alpha = 1) : (tensor<3x1xf32>) -> tensor<3x1xf32>
  %e = torch.call @aten.rsqrt.default(%d) : (tensor<3x1xf32>) -> tensor<3x1xf32>
  %f = torch.call @aten.mul.Tensor(%a, %e) : (tensor<3x16xf32>, tensor<3x1xf32>) -> tensor<3x16xf32>
  %g = torch.call @aten._to_copy.default(%f, dtype = bf16, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (tensor<3x16xf32>) -> tensor<3x16xbf16>
  %h = torch.call @aten.mul.Tensor(%w, %g) : (tensor<16xbf16>, tensor<3x16xbf16>) -> tensor<3x16xbf16>
  %i = torch.call @aten.mul.Tensor(%e, 1) : (tensor<3x1xf32>) -> tensor<3x1xf32>
  vllm_ir.return (%h, %i) : tensor<3x16xbf16>, tensor<3x1xf32>
}

// -----

// All of it is computed in bfloat16.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}recognize_rms_norm = [{{.*}}"%f: @aten.mul.Tensor: on operands of these types the pattern has other operations"
// CHECK-LABEL: @sixteen_bits(
// CHECK-NOT: vllm_ir.rms_norm
// CHECK: vllm_ir.return
vllm_ir.func functional @sixteen_bits(%x: tensor<3x16xbf16>, %w: tensor<16xbf16>) -> tensor<3x16xbf16> {
  %a = torch.call @aten.pow.Tensor_Scalar(%x, 2) : (tensor<3x16xbf16>) -> tensor<3x16xbf16>
  %b = torch.call @aten.mean.dim(%a, [-1], true, dtype = none) : (tensor<3x16xbf16>) -> tensor<3x1xbf16>
  %c = torch.call @aten.add.Tensor(%b, 1.0e-06, alpha = 1) : (tensor<3x1xbf16>) -> tensor<3x1xbf16>
  %d = torch.call @aten.rsqrt.default(%c) : (tensor<3x1xbf16>) -> tensor<3x1xbf16>
  %e = torch.call @aten.mul.Tensor(%x, %d) : (tensor<3x16xbf16>, tensor<3x1xbf16>) -> tensor<3x16xbf16>
  %f = torch.call @aten.mul.Tensor(%w, %e) : (tensor<16xbf16>, tensor<3x16xbf16>) -> tensor<3x16xbf16>
  vllm_ir.return %f : tensor<3x16xbf16>
}

// -----

// What it is multiplied with is no weight of a row: it stays behind a norm without weight.
// CHECK: vllm_ir.fused = {recognize_rms_norm_without_weight = ["%g"]}
// CHECK-LABEL: @column(
// CHECK-NEXT: %g = vllm_ir.rms_norm %x{{.*}}{epsilon = 1.000000e-06 : f64}
// CHECK-NEXT: %h = torch.call @aten.mul.Tensor(%w, %g)
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @column(%x: tensor<3x16xbf16>, %w: tensor<3x1xbf16>) -> tensor<3x16xbf16> {
  %a = torch.call @aten._to_copy.default(%x, dtype = f32, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (tensor<3x16xbf16>) -> tensor<3x16xf32>
  %b = torch.call @aten.pow.Tensor_Scalar(%a, 2) : (tensor<3x16xf32>) -> tensor<3x16xf32>
  %c = torch.call @aten.mean.dim(%b, [-1], true, dtype = none) : (tensor<3x16xf32>) -> tensor<3x1xf32>
  %d = torch.call @aten.add.Tensor(%c, 1.0e-06, alpha = 1) : (tensor<3x1xf32>) -> tensor<3x1xf32>
  %e = torch.call @aten.rsqrt.default(%d) : (tensor<3x1xf32>) -> tensor<3x1xf32>
  %f = torch.call @aten.mul.Tensor(%a, %e) : (tensor<3x16xf32>, tensor<3x1xf32>) -> tensor<3x16xf32>
  %g = torch.call @aten._to_copy.default(%f, dtype = bf16, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (tensor<3x16xf32>) -> tensor<3x16xbf16>
  %h = torch.call @aten.mul.Tensor(%w, %g) : (tensor<3x1xbf16>, tensor<3x16xbf16>) -> tensor<3x16xbf16>
  vllm_ir.return %h : tensor<3x16xbf16>
}
