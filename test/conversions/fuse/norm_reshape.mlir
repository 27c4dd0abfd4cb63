// RUN: vllm-ir-opt %s -p 'fuse{only=rms_norm_reshape explain=true}' --split-input-file | filecheck %s

// The rows are made first.
// CHECK: vllm_ir.fused = {rms_norm_reshape = ["%b"]}
// CHECK-LABEL: @rows(
// CHECK-NEXT: %b = torch.call @aten.view.default(%x, [-1, 16])
// CHECK-NEXT: %b_1 = vllm_ir.rms_norm %b{{.*}}{epsilon = 1.000000e-08 : f64}
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @rows(%x: tensor<2x3x16xbf16>, %w: tensor<16xbf16>) -> tensor<6x16xbf16> {
  %a = vllm_ir.rms_norm %x : tensor<2x3x16xbf16> weight %w : tensor<16xbf16> {epsilon = 1.000000e-08 : f64} -> tensor<2x3x16xbf16>
  %b = torch.call @aten.view.default(%a, [-1, 16]) : (tensor<2x3x16xbf16>) -> tensor<6x16xbf16>
  vllm_ir.return %b : tensor<6x16xbf16>
}

// -----

// The sum keeps its shape, for all that reads it.
// CHECK: vllm_ir.fused = {rms_norm_reshape = ["%c"]}
// CHECK-LABEL: @residual(
// CHECK-NEXT: %c = torch.call @aten.view.default(%x, [-1, 16])
// CHECK-NEXT: %c_1 = torch.call @aten.view.default(%r, [-1, 16])
// CHECK-NEXT: %c_2, %c_3 = vllm_ir.fused_add_rms_norm %c, %c_1{{.*}}{epsilon = 1.000000e-06 : f64}
// CHECK-NEXT: %b = torch.call @aten.view.default(%c_3, [2, 3, 16])
// CHECK-NEXT: %d = torch.call @aten.mul.Tensor(%b, 2)
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @residual(%x: tensor<2x3x16xf32>, %r: tensor<2x3x16xf32>) -> (tensor<6x16xf32>, tensor<2x3x16xf32>, tensor<2x3x16xf32>) {
  %a, %b = vllm_ir.fused_add_rms_norm %x, %r : tensor<2x3x16xf32>, tensor<2x3x16xf32> {epsilon = 1.000000e-06 : f64} -> tensor<2x3x16xf32>, tensor<2x3x16xf32>
  %c = torch.call @aten.view.default(%a, [6, 16]) : (tensor<2x3x16xf32>) -> tensor<6x16xf32>
  %d = torch.call @aten.mul.Tensor(%b, 2) : (tensor<2x3x16xf32>) -> tensor<2x3x16xf32>
  vllm_ir.return (%c, %b, %d) : tensor<6x16xf32>, tensor<2x3x16xf32>, tensor<2x3x16xf32>
}

// -----

// Rows of the result are not those that are normalised.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}rms_norm_reshape = [{{.*}}"%b: @aten.view.default: the condition _keeps_rows does not hold"
// CHECK-LABEL: @other_rows(
// CHECK: vllm_ir.return
vllm_ir.func functional @other_rows(%x: tensor<2x3x16xbf16>, %w: tensor<16xbf16>) -> tensor<12x8xbf16> {
  %a = vllm_ir.rms_norm %x : tensor<2x3x16xbf16> weight %w : tensor<16xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<2x3x16xbf16>
  %b = torch.call @aten.view.default(%a, [-1, 8]) : (tensor<2x3x16xbf16>) -> tensor<12x8xbf16>
  vllm_ir.return %b : tensor<12x8xbf16>
}

// -----

// The norm is one of a matrix already.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}rms_norm_reshape = [{{.*}}"%b: @aten.view.default: the condition _keeps_rows does not hold"
// CHECK-LABEL: @matrix(
// CHECK: vllm_ir.return
vllm_ir.func functional @matrix(%x: tensor<3x16xbf16>, %w: tensor<16xbf16>) -> tensor<3x16xbf16> {
  %a = vllm_ir.rms_norm %x : tensor<3x16xbf16> weight %w : tensor<16xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<3x16xbf16>
  %b = torch.call @aten.view.default(%a, [-1, 16]) : (tensor<3x16xbf16>) -> tensor<3x16xbf16>
  vllm_ir.return %b : tensor<3x16xbf16>
}

// -----

// Someone reads the result in its old shape.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}rms_norm_reshape = [{{.*}}"%a: vllm_ir.rms_norm: %a is also used by %c"
// CHECK-LABEL: @used(
// CHECK: vllm_ir.return
vllm_ir.func functional @used(%x: tensor<2x3x16xbf16>, %w: tensor<16xbf16>) -> (tensor<6x16xbf16>, tensor<3x16xbf16>) {
  %a = vllm_ir.rms_norm %x : tensor<2x3x16xbf16> weight %w : tensor<16xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<2x3x16xbf16>
  %b = torch.call @aten.view.default(%a, [-1, 16]) : (tensor<2x3x16xbf16>) -> tensor<6x16xbf16>
  %c = torch.call @aten.sum.dim_IntList(%a, [0], false, dtype = none) : (tensor<2x3x16xbf16>) -> tensor<3x16xbf16>
  vllm_ir.return (%b, %c) : tensor<6x16xbf16>, tensor<3x16xbf16>
}

// -----

// The result has three dimensions.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}rms_norm_reshape = [{{.*}}"%b: @aten.view.default: the condition _keeps_rows does not hold"
// CHECK-LABEL: @three(
// CHECK: vllm_ir.return
vllm_ir.func functional @three(%x: tensor<2x3x16xbf16>, %w: tensor<16xbf16>) -> tensor<3x2x16xbf16> {
  %a = vllm_ir.rms_norm %x : tensor<2x3x16xbf16> weight %w : tensor<16xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<2x3x16xbf16>
  %b = torch.call @aten.view.default(%a, [3, 2, 16]) : (tensor<2x3x16xbf16>) -> tensor<3x2x16xbf16>
  vllm_ir.return %b : tensor<3x2x16xbf16>
}
