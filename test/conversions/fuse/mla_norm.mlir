// RUN: vllm-ir-opt %s -p 'fuse{only=dual_rms_norm explain=true}' --split-input-file | filecheck %s

// CHECK: vllm_ir.fused = {dual_rms_norm = ["%d"]}
// CHECK-LABEL: @two(
// CHECK-NEXT: %d, %d_1 = torch.call @aten.split_with_sizes.default(%x, [24, 16], -1)
// CHECK-NEXT: %c, %d_2 = "vllm_ir.dual_rms_norm"(%d, %d_1, %w, %v) <{epsilon = 1.000000e-08 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 1>}>
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @two(%x: tensor<5x40xbf16>, %w: tensor<24xbf16>, %v: tensor<16xbf16>) -> (tensor<5x24xbf16>, tensor<5x16xbf16>) {
  %a, %b = torch.call @aten.split_with_sizes.default(%x, [24, 16], -1) : (tensor<5x40xbf16>) -> (tensor<5x24xbf16, #vllm_ir.layout<strides = [40, 1]>>, tensor<5x16xbf16, #vllm_ir.layout<strides = [40, 1]>>)
  %c = vllm_ir.rms_norm %a : tensor<5x24xbf16, #vllm_ir.layout<strides = [40, 1]>> weight %w : tensor<24xbf16> {epsilon = 1.000000e-08 : f64} -> tensor<5x24xbf16>
  %d = vllm_ir.rms_norm %b : tensor<5x16xbf16, #vllm_ir.layout<strides = [40, 1]>> weight %v : tensor<16xbf16> {epsilon = 1.000000e-08 : f64} -> tensor<5x16xbf16>
  vllm_ir.return (%c, %d) : tensor<5x24xbf16>, tensor<5x16xbf16>
}

// -----

// A piece is read as well; it is still there.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}dual_rms_norm = [{{.*}}"%a: @aten.split_with_sizes.default: %a is also used by %e"
// CHECK-LABEL: @piece_used(
// CHECK-NOT: dual_rms_norm
// CHECK: vllm_ir.return
vllm_ir.func functional @piece_used(%x: tensor<5x40xbf16>, %w: tensor<24xbf16>, %v: tensor<16xbf16>) -> (tensor<5x24xbf16>, tensor<5x16xbf16>, tensor<5x24xbf16>) {
  %a, %b = torch.call @aten.split_with_sizes.default(%x, [24, 16], -1) : (tensor<5x40xbf16>) -> (tensor<5x24xbf16, #vllm_ir.layout<strides = [40, 1]>>, tensor<5x16xbf16, #vllm_ir.layout<strides = [40, 1]>>)
  %c = vllm_ir.rms_norm %a : tensor<5x24xbf16, #vllm_ir.layout<strides = [40, 1]>> weight %w : tensor<24xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<5x24xbf16>
  %d = vllm_ir.rms_norm %b : tensor<5x16xbf16, #vllm_ir.layout<strides = [40, 1]>> weight %v : tensor<16xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<5x16xbf16>
  %e = torch.call @aten.mul.Tensor(%a, 2) : (tensor<5x24xbf16, #vllm_ir.layout<strides = [40, 1]>>) -> tensor<5x24xbf16>
  vllm_ir.return (%c, %d, %e) : tensor<5x24xbf16>, tensor<5x16xbf16>, tensor<5x24xbf16>
}

// -----

// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}dual_rms_norm = [{{.*}}"%c: vllm_ir.rms_norm: argument epsilon is 1e-06, the pattern has 1e-05"
// CHECK-LABEL: @two_epsilons(
// CHECK-NOT: dual_rms_norm
// CHECK: vllm_ir.return
vllm_ir.func functional @two_epsilons(%x: tensor<5x40xbf16>, %w: tensor<24xbf16>, %v: tensor<16xbf16>) -> (tensor<5x24xbf16>, tensor<5x16xbf16>) {
  %a, %b = torch.call @aten.split_with_sizes.default(%x, [24, 16], -1) : (tensor<5x40xbf16>) -> (tensor<5x24xbf16, #vllm_ir.layout<strides = [40, 1]>>, tensor<5x16xbf16, #vllm_ir.layout<strides = [40, 1]>>)
  %c = vllm_ir.rms_norm %a : tensor<5x24xbf16, #vllm_ir.layout<strides = [40, 1]>> weight %w : tensor<24xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<5x24xbf16>
  %d = vllm_ir.rms_norm %b : tensor<5x16xbf16, #vllm_ir.layout<strides = [40, 1]>> weight %v : tensor<16xbf16> {epsilon = 1.000000e-05 : f64} -> tensor<5x16xbf16>
  vllm_ir.return (%c, %d) : tensor<5x24xbf16>, tensor<5x16xbf16>
}

// -----

// A weight for one of them.
// CHECK: vllm_ir.fused = {dual_rms_norm = ["%d"]}
// CHECK-LABEL: @one_weight(
// CHECK: "vllm_ir.dual_rms_norm"(%{{[a-z_0-9]+}}, %{{[a-z_0-9]+}}, %w) {{.*}}operandSegmentSizes = array<i32: 1, 1, 1, 0>
// CHECK: vllm_ir.return
vllm_ir.func functional @one_weight(%x: tensor<5x40xbf16>, %w: tensor<24xbf16>) -> (tensor<5x24xbf16>, tensor<5x16xbf16>) {
  %a, %b = torch.call @aten.split_with_sizes.default(%x, [24, 16], -1) : (tensor<5x40xbf16>) -> (tensor<5x24xbf16, #vllm_ir.layout<strides = [40, 1]>>, tensor<5x16xbf16, #vllm_ir.layout<strides = [40, 1]>>)
  %c = vllm_ir.rms_norm %a : tensor<5x24xbf16, #vllm_ir.layout<strides = [40, 1]>> weight %w : tensor<24xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<5x24xbf16>
  %d = vllm_ir.rms_norm %b : tensor<5x16xbf16, #vllm_ir.layout<strides = [40, 1]>> {epsilon = 1.000000e-06 : f64} -> tensor<5x16xbf16>
  vllm_ir.return (%c, %d) : tensor<5x24xbf16>, tensor<5x16xbf16>
}

// -----

// The norms are of one piece.
// CHECK-NOT: vllm_ir.fused =
// CHECK-LABEL: @other_pieces(
// CHECK-NOT: dual_rms_norm
// CHECK: vllm_ir.return
vllm_ir.func functional @other_pieces(%x: tensor<5x40xbf16>, %w: tensor<24xbf16>, %v: tensor<24xbf16>) -> (tensor<5x24xbf16>, tensor<5x24xbf16>, tensor<5x16xbf16>) {
  %a, %b = torch.call @aten.split_with_sizes.default(%x, [24, 16], -1) : (tensor<5x40xbf16>) -> (tensor<5x24xbf16, #vllm_ir.layout<strides = [40, 1]>>, tensor<5x16xbf16, #vllm_ir.layout<strides = [40, 1]>>)
  %c = vllm_ir.rms_norm %a : tensor<5x24xbf16, #vllm_ir.layout<strides = [40, 1]>> weight %w : tensor<24xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<5x24xbf16>
  %d = vllm_ir.rms_norm %a : tensor<5x24xbf16, #vllm_ir.layout<strides = [40, 1]>> weight %v : tensor<24xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<5x24xbf16>
  %e = torch.call @aten.mul.Tensor(%b, 1) : (tensor<5x16xbf16, #vllm_ir.layout<strides = [40, 1]>>) -> tensor<5x16xbf16>
  vllm_ir.return (%c, %d, %e) : tensor<5x24xbf16>, tensor<5x24xbf16>, tensor<5x16xbf16>
}

// -----

// The split is one of rows.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}dual_rms_norm = [{{.*}}"%d: vllm_ir.rms_norm: before does not take operands of these types: {{.*}}Split sizes add up to 5 but got the tensor's size of 40"
// CHECK-LABEL: @rows(
// CHECK-NOT: dual_rms_norm
// CHECK: vllm_ir.return
vllm_ir.func functional @rows(%x: tensor<5x40xbf16>, %w: tensor<40xbf16>, %v: tensor<40xbf16>) -> (tensor<2x40xbf16>, tensor<3x40xbf16>) {
  %a, %b = torch.call @aten.split_with_sizes.default(%x, [2, 3], 0) : (tensor<5x40xbf16>) -> (tensor<2x40xbf16>, tensor<3x40xbf16>)
  %c = vllm_ir.rms_norm %a : tensor<2x40xbf16> weight %w : tensor<40xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<2x40xbf16>
  %d = vllm_ir.rms_norm %b : tensor<3x40xbf16> weight %v : tensor<40xbf16> {epsilon = 1.000000e-06 : f64} -> tensor<3x40xbf16>
  vllm_ir.return (%c, %d) : tensor<2x40xbf16>, tensor<3x40xbf16>
}
