// RUN: vllm-ir-opt %s --load %S/operators.py -p functionalize --split-input-file --verify-diagnostics | filecheck %s

// CHECK: @aten.add_.Tensor: writes %wide (!vllm_ir.buffer<4x6xf32, strides = [0, 1]>), whose elements share memory; the result would depend on the order of the writes: write to a clone
vllm_ir.func @expanded(%x: !vllm_ir.buffer<1x6xf32> {vllm_ir.mutated}, %y: tensor<4x6xf32>) {
  %wide = vllm_ir.view @aten.expand.default(%x, [4, 6], implicit = false) : (!vllm_ir.buffer<1x6xf32>) -> !vllm_ir.buffer<4x6xf32, strides = [0, 1]>
  %sum = torch.call @aten.add_.Tensor(%wide, %y, alpha = 1) reads(%wide) writes(%wide) returns [0] : (!vllm_ir.buffer<4x6xf32, strides = [0, 1]>, tensor<4x6xf32>) -> !vllm_ir.buffer<4x6xf32, strides = [0, 1]>
  vllm_ir.return ()
}

// -----

// CHECK: @aten.copy_.default: some elements of %tail (!vllm_ir.buffer<3xf32, offset = 1>) and %head (!vllm_ir.buffer<3xf32>) are the same memory and eager refuses the call; clone the source first
vllm_ir.func @shifted(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}) {
  %head = vllm_ir.view @aten.slice.Tensor(%x, 0, 0, 3, 1) : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<3xf32>
  %tail = vllm_ir.view @aten.slice.Tensor(%x, 0, 1, 4, 1) : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<3xf32, offset = 1>
  %copied = torch.call @aten.copy_.default(%tail, %head, false) reads(%tail, %head) writes(%tail) returns [0] : (!vllm_ir.buffer<3xf32, offset = 1>, !vllm_ir.buffer<3xf32>) -> !vllm_ir.buffer<3xf32, offset = 1>
  vllm_ir.return ()
}

// -----

// CHECK: @functionalize_lit.bump.default: writes %tail (!vllm_ir.buffer<3xf32, offset = 1>), which overlaps the operand %head (!vllm_ir.buffer<3xf32>); what the operator sees would depend on its implementation: pass a clone
vllm_ir.func @custom(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}) -> tensor<f32> {
  %head = vllm_ir.view @aten.slice.Tensor(%x, 0, 0, 3, 1) : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<3xf32>
  %tail = vllm_ir.view @aten.slice.Tensor(%x, 0, 1, 4, 1) : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<3xf32, offset = 1>
  %sum = torch.call @functionalize_lit.bump.default(%tail, %head) reads(%tail, %head) writes(%tail) : (!vllm_ir.buffer<3xf32, offset = 1>, !vllm_ir.buffer<3xf32>) -> tensor<f32>
  vllm_ir.return %sum : tensor<f32>
}

// -----

// CHECK: @aten.index_copy_.default: some of its operands share memory in a way that eager refuses; clone what is read first
vllm_ir.func @itself(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}, %index: tensor<4xi64>) {
  %copied = torch.call @aten.index_copy_.default(%x, 0, %index, %x) reads(%x) writes(%x) returns [0] : (!vllm_ir.buffer<4xf32>, tensor<4xi64>) -> !vllm_ir.buffer<4xf32>
  vllm_ir.return ()
}

// -----

// CHECK: @aten.add_.Tensor: computes f32, which eager does not write to i64; cast it first
vllm_ir.func @promoted(%x: !vllm_ir.buffer<4xi64> {vllm_ir.mutated}, %y: tensor<4xf32>) {
  %sum = torch.call @aten.add_.Tensor(%x, %y, alpha = 1) reads(%x) writes(%x) returns [0] : (!vllm_ir.buffer<4xi64>, tensor<4xf32>) -> !vllm_ir.buffer<4xi64>
  vllm_ir.return ()
}

// -----

// CHECK: @aten.add_.Tensor: gives a tensor of shape [4, 4] to one of shape [4]; resizing is not supported: allocate a tensor of the right size
vllm_ir.func @larger(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}, %y: tensor<4x4xf32>) {
  %sum = torch.call @aten.add_.Tensor(%x, %y, alpha = 1) reads(%x) writes(%x) returns [0] : (!vllm_ir.buffer<4xf32>, tensor<4x4xf32>) -> !vllm_ir.buffer<4xf32>
  vllm_ir.return ()
}

// -----

// Donated memory is used under no name, also not as a view.
// CHECK: @aten.neg.default: uses %row (select of %residual) after its memory was donated to vllm_ir.fused_add_rms_norm; call the op without maybe_inplace, or donate a clone
vllm_ir.func @donated(%x: tensor<4x8xbf16>, %residual: !vllm_ir.buffer<4x8xbf16> {vllm_ir.mutated}) -> (tensor<4x8xbf16>, tensor<8xbf16>) {
  %row = vllm_ir.view @aten.select.int(%residual, 0, 0) : (!vllm_ir.buffer<4x8xbf16>) -> !vllm_ir.buffer<8xbf16>
  %normed, %sum = vllm_ir.fused_add_rms_norm %x, %residual : tensor<4x8xbf16>, !vllm_ir.buffer<4x8xbf16> {epsilon = 1.0e-05 : f64, donated = array<i64: 1>} -> tensor<4x8xbf16>, tensor<4x8xbf16>
  %late = torch.call @aten.neg.default(%row) reads(%row) : (!vllm_ir.buffer<8xbf16>) -> tensor<8xbf16>
  vllm_ir.return (%normed, %late) : tensor<4x8xbf16>, tensor<8xbf16>
}

// -----

// CHECK: vllm_ir.return: uses %residual after its memory was donated to vllm_ir.fused_add_rms_norm
vllm_ir.func @returned(%x: tensor<4x8xbf16>, %residual: !vllm_ir.buffer<4x8xbf16> {vllm_ir.mutated}) -> (tensor<4x8xbf16>, !vllm_ir.buffer<4x8xbf16> {vllm_ir.aliases = 1 : i64}) {
  %normed, %sum = vllm_ir.fused_add_rms_norm %x, %residual : tensor<4x8xbf16>, !vllm_ir.buffer<4x8xbf16> {epsilon = 1.0e-05 : f64, donated = array<i64: 1>} -> tensor<4x8xbf16>, tensor<4x8xbf16>
  vllm_ir.return (%normed, %residual) : tensor<4x8xbf16>, !vllm_ir.buffer<4x8xbf16>
}

// -----

// CHECK: @aten.as_strided.default: as_strided reaches elements 3 to 6 of memory that holds 0 to 4
vllm_ir.func @outside(%x: tensor<4xf32>) -> tensor<f32> {
  %buffer = vllm_ir.alloc %x : tensor<4xf32> -> !vllm_ir.buffer<4xf32>
  %window = vllm_ir.view @aten.as_strided.default(%buffer, [3], [1], 3) : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<3xf32, offset = 3>
  %sum = torch.call @aten.sum.default(%window, dtype = none) reads(%window) : (!vllm_ir.buffer<3xf32, offset = 3>) -> tensor<f32>
  vllm_ir.return %sum : tensor<f32>
}

// -----

// CHECK: as_strided without an offset on a window without elements, !vllm_ir.buffer<5x0xf32, strides = [1, 10], offset = 5>; pass storage_offset
vllm_ir.func @main(%a: !vllm_ir.buffer<16x1x5xf32> {vllm_ir.mutated}) {
  %diagonal = vllm_ir.view @aten.diagonal.default(%a, -1, 1, 0) : (!vllm_ir.buffer<16x1x5xf32>) -> !vllm_ir.buffer<5x0xf32, strides = [1, 10], offset = 5>
  %strided = vllm_ir.view @aten.as_strided.default(%diagonal, [1, 2], [4, 2], none) : (!vllm_ir.buffer<5x0xf32, strides = [1, 10], offset = 5>) -> !vllm_ir.buffer<1x2xf32, strides = [4, 2], offset = 5>
  %new = torch.call @aten.add_.Tensor(%strided, 1, alpha = 1) reads(%strided) writes(%strided) returns [0] : (!vllm_ir.buffer<1x2xf32, strides = [4, 2], offset = 5>) -> !vllm_ir.buffer<1x2xf32, strides = [4, 2], offset = 5>
  vllm_ir.return none
}
