// RUN: vllm-ir-opt %s -p 'fuse{only=recognize_silu_and_mul,recognize_gelu_and_mul,recognize_silu_mul,recognize_gelu_mul explain=true}' --split-input-file | filecheck %s

// CHECK: vllm_ir.fused = {recognize_silu_and_mul = ["%d"]}
// CHECK-LABEL: @halves(
// CHECK-NEXT: %d = vllm_ir.silu_and_mul %x
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @halves(%x: tensor<3x32xbf16>) -> tensor<3x16xbf16> {
  %a, %b = torch.call @aten.split.Tensor(%x, 16, -1) : (tensor<3x32xbf16>) -> (tensor<3x16xbf16, #vllm_ir.layout<strides = [32, 1]>>, tensor<3x16xbf16, #vllm_ir.layout<strides = [32, 1]>>)
  %c = torch.call @aten.silu.default(%a) : (tensor<3x16xbf16, #vllm_ir.layout<strides = [32, 1]>>) -> tensor<3x16xbf16>
  %d = torch.call @aten.mul.Tensor(%c, %b) : (tensor<3x16xbf16>, tensor<3x16xbf16, #vllm_ir.layout<strides = [32, 1]>>) -> tensor<3x16xbf16>
  vllm_ir.return %d : tensor<3x16xbf16>
}

// -----

// CHECK: vllm_ir.fused = {recognize_gelu_and_mul = ["%d"]}
// CHECK-LABEL: @factor_first(
// CHECK-NEXT: %d = vllm_ir.gelu_and_mul %x{{.*}}{approximate = "tanh"}
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @factor_first(%x: tensor<3x32xf32>) -> tensor<3x16xf32> {
  %a = torch.call @aten.slice.Tensor(%x, 1, 16, 9223372036854775807, 1) : (tensor<3x32xf32>) -> tensor<3x16xf32, #vllm_ir.layout<strides = [32, 1]>>
  %b = torch.call @aten.slice.Tensor(%x, 1, 0, 16, 1) : (tensor<3x32xf32>) -> tensor<3x16xf32, #vllm_ir.layout<strides = [32, 1]>>
  %c = torch.call @aten.gelu.default(%b, approximate = "tanh") : (tensor<3x16xf32, #vllm_ir.layout<strides = [32, 1]>>) -> tensor<3x16xf32>
  %d = torch.call @aten.mul.Tensor(%a, %c) : (tensor<3x16xf32, #vllm_ir.layout<strides = [32, 1]>>, tensor<3x16xf32>) -> tensor<3x16xf32>
  vllm_ir.return %d : tensor<3x16xf32>
}

// -----

// CHECK: vllm_ir.fused = {recognize_silu_mul = ["%b"]}
// CHECK-LABEL: @two_tensors(
// CHECK-NEXT: %b = "vllm_ir.silu_mul"(%g, %u)
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @two_tensors(%g: tensor<3x16xf16>, %u: tensor<3x16xf16>) -> tensor<3x16xf16> {
  %a = torch.call @aten.silu.default(%g) : (tensor<3x16xf16>) -> tensor<3x16xf16>
  %b = torch.call @aten.mul.Tensor(%a, %u) : (tensor<3x16xf16>, tensor<3x16xf16>) -> tensor<3x16xf16>
  vllm_ir.return %b : tensor<3x16xf16>
}

// -----

// The second half is the gate: no op of halves, but one of two tensors.
// CHECK: vllm_ir.fused = {recognize_silu_mul = ["%d"]}
// CHECK-LABEL: @second_half(
// CHECK-NEXT: %a = torch.call @aten.slice.Tensor(%x, 1, 0, 16, 1)
// CHECK-NEXT: %b = torch.call @aten.slice.Tensor(%x, 1, 16, 9223372036854775807, 1)
// CHECK-NEXT: %d = "vllm_ir.silu_mul"(%b, %a)
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @second_half(%x: tensor<3x32xbf16>) -> tensor<3x16xbf16> {
  %a = torch.call @aten.slice.Tensor(%x, 1, 0, 16, 1) : (tensor<3x32xbf16>) -> tensor<3x16xbf16, #vllm_ir.layout<strides = [32, 1]>>
  %b = torch.call @aten.slice.Tensor(%x, 1, 16, 9223372036854775807, 1) : (tensor<3x32xbf16>) -> tensor<3x16xbf16, #vllm_ir.layout<strides = [32, 1]>>
  %c = torch.call @aten.silu.default(%b) : (tensor<3x16xbf16, #vllm_ir.layout<strides = [32, 1]>>) -> tensor<3x16xbf16>
  %d = torch.call @aten.mul.Tensor(%a, %c) : (tensor<3x16xbf16, #vllm_ir.layout<strides = [32, 1]>>, tensor<3x16xbf16>) -> tensor<3x16xbf16>
  vllm_ir.return %d : tensor<3x16xbf16>
}

// -----

// Halves along another dimension are two tensors.
// CHECK: vllm_ir.fused = {recognize_silu_mul = ["%d"]}
// CHECK-LABEL: @rows(
// CHECK-NEXT: %a = torch.call @aten.slice.Tensor(%x, 0, 0, 2, 1)
// CHECK-NEXT: %c = torch.call @aten.slice.Tensor(%x, 0, 2, 9223372036854775807, 1)
// CHECK-NEXT: %d = "vllm_ir.silu_mul"(%a, %c)
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @rows(%x: tensor<4x16xbf16>) -> tensor<2x16xbf16> {
  %a = torch.call @aten.slice.Tensor(%x, 0, 0, 2, 1) : (tensor<4x16xbf16>) -> tensor<2x16xbf16>
  %b = torch.call @aten.silu.default(%a) : (tensor<2x16xbf16>) -> tensor<2x16xbf16>
  %c = torch.call @aten.slice.Tensor(%x, 0, 2, 9223372036854775807, 1) : (tensor<4x16xbf16>) -> tensor<2x16xbf16>
  %d = torch.call @aten.mul.Tensor(%b, %c) : (tensor<2x16xbf16>, tensor<2x16xbf16>) -> tensor<2x16xbf16>
  vllm_ir.return %d : tensor<2x16xbf16>
}

// -----

// The activation is read as well.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}recognize_silu_mul = [{{.*}}"%a: @aten.silu.default: %a is also used by %c"
// CHECK-LABEL: @used(
// CHECK-NOT: _mul
// CHECK: vllm_ir.return
vllm_ir.func functional @used(%g: tensor<3x16xbf16>, %u: tensor<3x16xbf16>) -> (tensor<3x16xbf16>, tensor<3x16xbf16>) {
  %a = torch.call @aten.silu.default(%g) : (tensor<3x16xbf16>) -> tensor<3x16xbf16>
  %b = torch.call @aten.mul.Tensor(%a, %u) : (tensor<3x16xbf16>, tensor<3x16xbf16>) -> tensor<3x16xbf16>
  %c = torch.call @aten.add.Tensor(%a, 1, alpha = 1) : (tensor<3x16xbf16>) -> tensor<3x16xbf16>
  vllm_ir.return (%b, %c) : tensor<3x16xbf16>, tensor<3x16xbf16>
}

// -----

// The factor is one of a row.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}recognize_silu_mul = [{{.*}}"%b: @aten.mul.Tensor: after does not take operands of these types: {{.*}}vllm_ir.silu_mul: up must be torch.bfloat16 of shape [3, 16], like gate; got torch.bfloat16 of shape [16]"
// CHECK-LABEL: @broadcast(
// CHECK-NOT: _mul
// CHECK: vllm_ir.return
vllm_ir.func functional @broadcast(%g: tensor<3x16xbf16>, %u: tensor<16xbf16>) -> tensor<3x16xbf16> {
  %a = torch.call @aten.silu.default(%g) : (tensor<3x16xbf16>) -> tensor<3x16xbf16>
  %b = torch.call @aten.mul.Tensor(%a, %u) : (tensor<3x16xbf16>, tensor<16xbf16>) -> tensor<3x16xbf16>
  vllm_ir.return %b : tensor<3x16xbf16>
}

// -----

// The factor has another dtype, and so has the result.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}recognize_silu_mul = [{{.*}}"%b: @aten.mul.Tensor: after does not take operands of these types: {{.*}}vllm_ir.silu_mul: up must be torch.bfloat16 of shape [3, 16], like gate; got torch.float32 of shape [3, 16]"
// CHECK-LABEL: @mixed(
// CHECK-NOT: _mul
// CHECK: vllm_ir.return
vllm_ir.func functional @mixed(%g: tensor<3x16xbf16>, %u: tensor<3x16xf32>) -> tensor<3x16xf32> {
  %a = torch.call @aten.silu.default(%g) : (tensor<3x16xbf16>) -> tensor<3x16xbf16>
  %b = torch.call @aten.mul.Tensor(%a, %u) : (tensor<3x16xbf16>, tensor<3x16xf32>) -> tensor<3x16xf32>
  vllm_ir.return %b : tensor<3x16xf32>
}

// -----

// CHECK: vllm_ir.fused = {recognize_silu_mul = ["%e"]}
// CHECK-LABEL: @activated_twice(
// CHECK-NEXT: %a = torch.call @aten.slice.Tensor(%x, 1, 0, 16, 1)
// CHECK-NEXT: %c = torch.call @aten.slice.Tensor(%x, 1, 16, 9223372036854775807, 1)
// CHECK-NEXT: %d = torch.call @aten.silu.default(%c)
// CHECK-NEXT: %e = "vllm_ir.silu_mul"(%a, %d)
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @activated_twice(%x: tensor<3x32xbf16>) -> tensor<3x16xbf16> {
  %a = torch.call @aten.slice.Tensor(%x, 1, 0, 16, 1) : (tensor<3x32xbf16>) -> tensor<3x16xbf16, #vllm_ir.layout<strides = [32, 1]>>
  %b = torch.call @aten.silu.default(%a) : (tensor<3x16xbf16, #vllm_ir.layout<strides = [32, 1]>>) -> tensor<3x16xbf16>
  %c = torch.call @aten.slice.Tensor(%x, 1, 16, 9223372036854775807, 1) : (tensor<3x32xbf16>) -> tensor<3x16xbf16, #vllm_ir.layout<strides = [32, 1]>>
  %d = torch.call @aten.silu.default(%c) : (tensor<3x16xbf16, #vllm_ir.layout<strides = [32, 1]>>) -> tensor<3x16xbf16>
  %e = torch.call @aten.mul.Tensor(%b, %d) : (tensor<3x16xbf16>, tensor<3x16xbf16>) -> tensor<3x16xbf16>
  vllm_ir.return %e : tensor<3x16xbf16>
}
