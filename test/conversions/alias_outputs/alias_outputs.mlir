// RUN: vllm-ir-opt %s --split-input-file -p alias-outputs | filecheck %s
// RUN: vllm-ir-opt %s --split-input-file -p alias-outputs,functionalize | filecheck %s --check-prefix PURE

// A mutated argument that no output is becomes one; the value takes its place.
// CHECK-LABEL: vllm_ir.func @append(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<4x6xf32>) -> (tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32> {vllm_ir.aliases = 0 : i64}) attributes {vllm_ir.original_output_count = 1 : i64} {
// CHECK: vllm_ir.return (%neg, %x) : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
// PURE-LABEL: vllm_ir.func functional @append(%x: tensor<4x6xf32>, %y: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32> {vllm_ir.aliases = 0 : i64}) attributes {vllm_ir.original_output_count = 1 : i64} {
// PURE-NEXT: %sum = torch.call @aten.add.Tensor(%x, %y, alpha = 1) : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
// PURE-NEXT: %neg = torch.call @aten.neg.default(%y) : (tensor<4x6xf32>) -> tensor<4x6xf32>
// PURE-NEXT: vllm_ir.return (%neg, %sum) : tensor<4x6xf32>, tensor<4x6xf32>
// PURE-NEXT: }
vllm_ir.func @append(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %sum = torch.call @aten.add_.Tensor(%x, %y, alpha = 1) reads(%x) writes(%x) returns [0] : (!vllm_ir.buffer<4x6xf32>, tensor<4x6xf32>) -> !vllm_ir.buffer<4x6xf32>
  %neg = torch.call @aten.neg.default(%y) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  vllm_ir.return %neg : tensor<4x6xf32>
}

// -----

// An output that is the argument is not appended. The second time it is a window like any other one.
// CHECK-LABEL: vllm_ir.func @returned(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}) -> (!vllm_ir.buffer<4xf32> {vllm_ir.aliases = 0 : i64}, !vllm_ir.buffer<4xf32> {vllm_ir.output_view = {input = 0 : i64, shape = [4 : i64], offset = 0 : i64, dtype = f32, strides = [1 : i64]}}) attributes {vllm_ir.original_output_count = 3 : i64} {
// CHECK: vllm_ir.return (%sum, 7, %sum as 1) : !vllm_ir.buffer<4xf32>, !vllm_ir.buffer<4xf32>
// PURE-LABEL: vllm_ir.func functional @returned(%x: tensor<4xf32>) -> (tensor<4xf32> {vllm_ir.aliases = 0 : i64}, tensor<4xf32> {vllm_ir.output_view = {{.*}}}) attributes {vllm_ir.original_output_count = 3 : i64} {
// PURE: vllm_ir.return (%sum, 7, %sum as 1) : tensor<4xf32>, tensor<4xf32>
vllm_ir.func @returned(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}) -> (!vllm_ir.buffer<4xf32> {vllm_ir.aliases = 0 : i64}) {
  %sum = torch.call @aten.add_.Tensor(%x, 1, alpha = 1) reads(%x) writes(%x) returns [0] : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<4xf32>
  vllm_ir.return (%sum, [7, %sum]) : !vllm_ir.buffer<4xf32>
}

// -----

// A square transposition has the shape of the argument, but is another window. Nothing changes, nothing is appended.
// CHECK-LABEL: vllm_ir.func @view(%x: !vllm_ir.buffer<4x4xf32>) -> (!vllm_ir.buffer<4x4xf32, strides = [1, 4]> {vllm_ir.output_view = {input = 0 : i64, shape = [4 : i64, 4 : i64], offset = 0 : i64, dtype = f32, strides = [1 : i64, 4 : i64]}}) attributes {vllm_ir.original_output_count = 1 : i64} {
// PURE-LABEL: vllm_ir.func functional @view(%x: tensor<4x4xf32>) -> (tensor<4x4xf32, #vllm_ir.layout<strides = [1, 4]>> {vllm_ir.output_view = {{.*}}}) attributes {vllm_ir.original_output_count = 1 : i64} {
// PURE-NEXT: %0 = torch.call @aten.t.default(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32, #vllm_ir.layout<strides = [1, 4]>>
// PURE-NEXT: vllm_ir.return (%0) : tensor<4x4xf32, #vllm_ir.layout<strides = [1, 4]>>
vllm_ir.func @view(%x: !vllm_ir.buffer<4x4xf32>) -> (!vllm_ir.buffer<4x4xf32, strides = [1, 4]> {vllm_ir.aliases = 0 : i64}) {
  %t = vllm_ir.view @aten.t.default(%x) : (!vllm_ir.buffer<4x4xf32>) -> !vllm_ir.buffer<4x4xf32, strides = [1, 4]>
  vllm_ir.return %t : !vllm_ir.buffer<4x4xf32, strides = [1, 4]>
}

// -----

// Without outputs.
// CHECK-LABEL: vllm_ir.func @nothing(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}) -> (!vllm_ir.buffer<4xf32> {vllm_ir.aliases = 0 : i64}) attributes {vllm_ir.original_output_count = 0 : i64} {
// PURE-LABEL: vllm_ir.func functional @nothing(%x: tensor<4xf32>) -> (tensor<4xf32> {vllm_ir.aliases = 0 : i64}) attributes {vllm_ir.original_output_count = 0 : i64} {
vllm_ir.func @nothing(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}) {
  %sum = torch.call @aten.add_.Tensor(%x, 1, alpha = 1) reads(%x) writes(%x) returns [0] : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<4xf32>
  vllm_ir.return ()
}

// -----

// An argument in the same memory changes too, where it overlaps what is written, and is told by its window.
// CHECK-LABEL: vllm_ir.func @shared
// CHECK-SAME: -> (!vllm_ir.buffer<4xf32, offset = 4> {vllm_ir.aliases = 1 : i64}, !vllm_ir.buffer<2x4xf32> {vllm_ir.aliases = 0 : i64}) attributes {vllm_ir.original_output_count = 1 : i64} {
// PURE-LABEL: vllm_ir.func functional @shared(%x: tensor<2x4xf32> {vllm_ir.storage = 0 : i64}, %low: tensor<4xf32> {vllm_ir.storage = 0 : i64}, %high: tensor<4xf32> {vllm_ir.storage = 0 : i64})
// PURE-NEXT: %[[FLAT:.*]] = torch.call @aten.reshape.default(%x, [8]) : (tensor<2x4xf32>) -> tensor<8xf32>
// PURE: vllm_ir.return
vllm_ir.func @shared(%x: !vllm_ir.buffer<2x4xf32> {vllm_ir.mutated, vllm_ir.storage = 0 : i64}, %low: !vllm_ir.buffer<4xf32, offset = 4> {vllm_ir.storage = 0 : i64}, %high: !vllm_ir.buffer<4xf32> {vllm_ir.storage = 0 : i64}) -> (!vllm_ir.buffer<4xf32, offset = 4> {vllm_ir.aliases = 0 : i64}) {
  %row = vllm_ir.view @aten.select.int(%x, 0, 1) : (!vllm_ir.buffer<2x4xf32>) -> !vllm_ir.buffer<4xf32, offset = 4>
  %sum = torch.call @aten.add_.Tensor(%row, 1, alpha = 1) reads(%row) writes(%row) returns [0] : (!vllm_ir.buffer<4xf32, offset = 4>) -> !vllm_ir.buffer<4xf32, offset = 4>
  vllm_ir.return %row : !vllm_ir.buffer<4xf32, offset = 4>
}
