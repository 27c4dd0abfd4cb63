// RUN: vllm-ir-opt %s --load %S/operators.py -p eliminate-clones | filecheck %s

// Where an update is not written in place, the copy that it is written to says why.

// A caller who did not ask for a write does not get one.
// CHECK-LABEL: vllm_ir.func @callers(%x: tensor<4x6xf32>, %y: tensor<6xf32>) -> tensor<4x6xf32> {
// CHECK-NEXT: %x_1 = torch.call @aten.clone.default(%x, memory_format = none) attributes {vllm_ir.reason = "%x is the caller's, who did not ask for the write"} : (tensor<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: %x_2 = vllm_ir.alloc %x_1 : tensor<4x6xf32> -> !vllm_ir.buffer<4x6xf32>
// CHECK-NEXT: %new = vllm_ir.view @aten.select.int(%x_2, 0, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %new_1 = torch.call @aten.copy_.default(%new, %y, false) reads(%new) writes(%new) returns [0] : (!vllm_ir.buffer<6xf32, offset = 12>, tensor<6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %0 = vllm_ir.read %x_2 : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
// CHECK-NEXT: vllm_ir.return %0 : tensor<4x6xf32>
// CHECK-NEXT: }
vllm_ir.func functional @callers(%x: tensor<4x6xf32>, %y: tensor<6xf32>) -> tensor<4x6xf32> {
  %new = torch.call @aten.select_scatter.default(%x, %y, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  vllm_ir.return %new : tensor<4x6xf32>
}

// Only buffers have memory to give away.
// CHECK-LABEL: vllm_ir.func @donated_value(%x: tensor<4x6xf32> {vllm_ir.donated}, %y: tensor<6xf32>) -> tensor<4x6xf32> {
// CHECK-NEXT: %x_1 = torch.call @aten.clone.default(%x, memory_format = none) attributes {vllm_ir.reason = "%x is donated as a value, not as a buffer"} : (tensor<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: %x_2 = vllm_ir.alloc %x_1 : tensor<4x6xf32> -> !vllm_ir.buffer<4x6xf32>
// CHECK-NEXT: %new = vllm_ir.view @aten.select.int(%x_2, 0, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %new_1 = torch.call @aten.copy_.default(%new, %y, false) reads(%new) writes(%new) returns [0] : (!vllm_ir.buffer<6xf32, offset = 12>, tensor<6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %0 = vllm_ir.read %x_2 : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
// CHECK-NEXT: vllm_ir.return %0 : tensor<4x6xf32>
// CHECK-NEXT: }
vllm_ir.func functional @donated_value(%x: tensor<4x6xf32> {vllm_ir.donated}, %y: tensor<6xf32>) -> tensor<4x6xf32> {
  %new = torch.call @aten.select_scatter.default(%x, %y, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  vllm_ir.return %new : tensor<4x6xf32>
}

// A constant is the same at the next call. The copy that the program made itself is the one that stays.
// CHECK-LABEL: vllm_ir.func @constant(%y: tensor<1xui8>) -> tensor<4xui8> {
// CHECK-NEXT: %c = torch.constant "00010203" : tensor<4xui8>
// CHECK-NEXT: %copy = torch.call @aten.clone.default(%c, memory_format = none) attributes {vllm_ir.reason = "%c is a constant"} : (tensor<4xui8>) -> tensor<4xui8>
// CHECK-NEXT: %copy_1 = vllm_ir.alloc %copy : tensor<4xui8> -> !vllm_ir.buffer<4xui8>
// CHECK-NEXT: %new = vllm_ir.view @aten.slice.Tensor(%copy_1, 0, 1, 2, 1) : (!vllm_ir.buffer<4xui8>) -> !vllm_ir.buffer<1xui8, offset = 1>
// CHECK-NEXT: %new_1 = torch.call @aten.copy_.default(%new, %y, false) reads(%new) writes(%new) returns [0] : (!vllm_ir.buffer<1xui8, offset = 1>, tensor<1xui8>) -> !vllm_ir.buffer<1xui8, offset = 1>
// CHECK-NEXT: %0 = vllm_ir.read %copy_1 : !vllm_ir.buffer<4xui8> -> tensor<4xui8>
// CHECK-NEXT: vllm_ir.return %0 : tensor<4xui8>
// CHECK-NEXT: }
vllm_ir.func functional @constant(%y: tensor<1xui8>) -> tensor<4xui8> {
  %c = torch.constant "00010203" : tensor<4xui8>
  %copy = torch.call @aten.clone.default(%c, memory_format = none) : (tensor<4xui8>) -> tensor<4xui8>
  %new = torch.call @aten.slice_scatter.default(%copy, %y, 0, 1, 2, 1) : (tensor<4xui8>, tensor<1xui8>) -> tensor<4xui8>
  vllm_ir.return %new : tensor<4xui8>
}

// Where a piece lies that starts at a number known only at run time is not known: the operation stays as it is.
// CHECK-LABEL: vllm_ir.func functional @unknown(%i: i64, %x: tensor<8xf32>, %y: tensor<2xf32>) -> tensor<8xf32> {
// CHECK-NEXT: %old = torch.call @aten.mul.Tensor(%x, 2) : (tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT: %new = torch.call @aten.slice_scatter.default(%old, %y, 0, %i, 8, 3) : (tensor<8xf32>, tensor<2xf32>, i64) -> tensor<8xf32>
// CHECK-NEXT: vllm_ir.return %new : tensor<8xf32>
// CHECK-NEXT: }
vllm_ir.func functional @unknown(%i: i64, %x: tensor<8xf32>, %y: tensor<2xf32>) -> tensor<8xf32> {
  %old = torch.call @aten.mul.Tensor(%x, 2) : (tensor<8xf32>) -> tensor<8xf32>
  %new = torch.call @aten.slice_scatter.default(%old, %y, 0, %i, 8, 3) : (tensor<8xf32>, tensor<2xf32>, i64) -> tensor<8xf32>
  vllm_ir.return %new : tensor<8xf32>
}

// Elements of an expanded window share memory: each would be written more than once.
// CHECK-LABEL: vllm_ir.func @expanded(%x: tensor<1x6xf32>, %y: tensor<6xf32>) -> tensor<4x6xf32, #vllm_ir.layout<strides = [0, 1]>> {
// CHECK-NEXT: %row = torch.call @aten.mul.Tensor(%x, 2) : (tensor<1x6xf32>) -> tensor<1x6xf32>
// CHECK-NEXT: %old = torch.call @aten.expand.default(%row, [4, 6], implicit = false) : (tensor<1x6xf32>) -> tensor<4x6xf32, #vllm_ir.layout<strides = [0, 1]>>
// CHECK-NEXT: %mask = torch.call @aten.gt.Scalar(%y, 0) : (tensor<6xf32>) -> tensor<6xi1>
// CHECK-NEXT: %old_1 = torch.call @aten.clone.default(%old, memory_format = none) attributes {vllm_ir.reason = "the window of %old overlaps itself"} : (tensor<4x6xf32, #vllm_ir.layout<strides = [0, 1]>>) -> tensor<4x6xf32>
// CHECK-NEXT: %old_2 = vllm_ir.alloc %old_1 : tensor<4x6xf32> -> !vllm_ir.buffer<4x6xf32>
// CHECK-NEXT: %new = torch.call @aten.masked_fill_.Scalar(%old_2, %mask, 3) reads(%old_2) writes(%old_2) returns [0] : (!vllm_ir.buffer<4x6xf32>, tensor<6xi1>) -> !vllm_ir.buffer<4x6xf32>
// CHECK-NEXT: %0 = vllm_ir.read %old_2 : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32, #vllm_ir.layout<strides = [0, 1]>>
// CHECK-NEXT: vllm_ir.return %0 : tensor<4x6xf32, #vllm_ir.layout<strides = [0, 1]>>
// CHECK-NEXT: }
vllm_ir.func functional @expanded(%x: tensor<1x6xf32>, %y: tensor<6xf32>) -> tensor<4x6xf32, #vllm_ir.layout<strides = [0, 1]>> {
  %row = torch.call @aten.mul.Tensor(%x, 2) : (tensor<1x6xf32>) -> tensor<1x6xf32>
  %old = torch.call @aten.expand.default(%row, [4, 6], implicit = false) : (tensor<1x6xf32>) -> tensor<4x6xf32, #vllm_ir.layout<strides = [0, 1]>>
  %mask = torch.call @aten.gt.Scalar(%y, 0) : (tensor<6xf32>) -> tensor<6xi1>
  %new = torch.call @aten.masked_fill.Scalar(%old, %mask, 3) : (tensor<4x6xf32, #vllm_ir.layout<strides = [0, 1]>>, tensor<6xi1>) -> tensor<4x6xf32, #vllm_ir.layout<strides = [0, 1]>>
  vllm_ir.return %new : tensor<4x6xf32, #vllm_ir.layout<strides = [0, 1]>>
}

// The copy has rows without gaps, the columns of the matrix have gaps.
// CHECK-LABEL: vllm_ir.func @strict(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}) {
// CHECK-NEXT: %column = vllm_ir.view @aten.select.int(%x, 1, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<4xf32, strides = [6], offset = 2>
// CHECK-NEXT: %dense = vllm_ir.read %column : !vllm_ir.buffer<4xf32, strides = [6], offset = 2> -> tensor<4xf32, #vllm_ir.layout<strides = [6]>>
// CHECK-NEXT: %dense_1 = vllm_ir.relayout %dense : tensor<4xf32, #vllm_ir.layout<strides = [6]>> -> tensor<4xf32>
// CHECK-NEXT: %dense_2 = torch.call @aten.clone.default(%dense_1, memory_format = none) attributes {vllm_ir.reason = "%dense is laid out in another way than the operator takes it"} : (tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: %dense_3 = vllm_ir.alloc %dense_2 : tensor<4xf32> -> !vllm_ir.buffer<4xf32>
// CHECK-NEXT: torch.call @eliminate_lit.strict.default(%dense_3) reads(%dense_3) writes(%dense_3) : (!vllm_ir.buffer<4xf32>) -> ()
// CHECK-NEXT: %all = vllm_ir.view @aten.select.int(%x, 1, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<4xf32, strides = [6], offset = 2>
// CHECK-NEXT: %all_1 = torch.call @aten.copy_.default(%all, %dense_3, false) reads(%all, %dense_3) writes(%all) returns [0] : (!vllm_ir.buffer<4xf32, strides = [6], offset = 2>, !vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<4xf32, strides = [6], offset = 2>
// CHECK-NEXT: vllm_ir.return ()
// CHECK-NEXT: }
vllm_ir.func functional @strict(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}) {
  %old = vllm_ir.read %x : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
  %column = torch.call @aten.select.int(%old, 1, 2) : (tensor<4x6xf32>) -> tensor<4xf32, #vllm_ir.layout<strides = [6]>>
  %dense = vllm_ir.relayout %column : tensor<4xf32, #vllm_ir.layout<strides = [6]>> -> tensor<4xf32>
  %new = torch.call @eliminate_lit.strict.default(%dense) updates [0] : (tensor<4xf32>) -> tensor<4xf32>
  %all = torch.call @aten.select_scatter.default(%old, %new, 1, 2) : (tensor<4x6xf32>, tensor<4xf32>) -> tensor<4x6xf32>
  vllm_ir.write %all, %x : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
  vllm_ir.return ()
}

// The old value is returned beside the new one. Only the part that is returned is copied, if it is smaller.
// CHECK-LABEL: vllm_ir.func @returned(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) -> tensor<6xf32> {
// CHECK-NEXT: %row = vllm_ir.view @aten.select.int(%x, 0, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %row_1 = torch.call @aten.clone.default(%row, memory_format = none) reads(%row) attributes {vllm_ir.reason = "%row is overwritten by @aten.select_scatter.default and returned"} : (!vllm_ir.buffer<6xf32, offset = 12>) -> tensor<6xf32>
// CHECK-NEXT: %new = vllm_ir.view @aten.select.int(%x, 0, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %new_1 = torch.call @aten.copy_.default(%new, %y, false) reads(%new) writes(%new) returns [0] : (!vllm_ir.buffer<6xf32, offset = 12>, tensor<6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: vllm_ir.return %row_1 : tensor<6xf32>
// CHECK-NEXT: }
vllm_ir.func functional @returned(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) -> tensor<6xf32> {
  %old = vllm_ir.read %x : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
  %row = torch.call @aten.select.int(%old, 0, 2) : (tensor<4x6xf32>) -> tensor<6xf32>
  %new = torch.call @aten.select_scatter.default(%old, %y, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  vllm_ir.write %new, %x : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
  vllm_ir.return %row : tensor<6xf32>
}

// A copy that the program made to keep the old value stays, at the place where it was made.
// CHECK-LABEL: vllm_ir.func @kept(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) -> tensor<4x6xf32> {
// CHECK-NEXT: %copy = torch.call @aten.clone.default(%x, memory_format = none) reads(%x) attributes {vllm_ir.reason = "%copy is overwritten by @aten.select_scatter.default and returned"} : (!vllm_ir.buffer<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: %new = vllm_ir.view @aten.select.int(%x, 0, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %new_1 = torch.call @aten.copy_.default(%new, %y, false) reads(%new) writes(%new) returns [0] : (!vllm_ir.buffer<6xf32, offset = 12>, tensor<6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: vllm_ir.return %copy : tensor<4x6xf32>
// CHECK-NEXT: }
vllm_ir.func functional @kept(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) -> tensor<4x6xf32> {
  %old = vllm_ir.read %x : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
  %copy = torch.call @aten.clone.default(%old, memory_format = none) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %new = torch.call @aten.select_scatter.default(%old, %y, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  vllm_ir.write %new, %x : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
  vllm_ir.return %copy : tensor<4x6xf32>
}

// Both values are new memory: the copy is of the smaller.
// CHECK-LABEL: vllm_ir.func @both(%x: tensor<4x6xf32>, %y: tensor<6xf32>) -> (tensor<4x6xf32>, tensor<6xf32>, tensor<4x6xf32>) {
// CHECK-NEXT: %old = torch.call @aten.mul.Tensor(%x, 2) : (tensor<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: %row = torch.call @aten.select.int(%old, 0, 2) : (tensor<4x6xf32>) -> tensor<6xf32>
// CHECK-NEXT: %old_1 = torch.call @aten.clone.default(%old, memory_format = none) attributes {vllm_ir.reason = "%old is still needed by @aten.add.Tensor"} : (tensor<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: %old_2 = vllm_ir.alloc %old_1 : tensor<4x6xf32> -> !vllm_ir.buffer<4x6xf32>
// CHECK-NEXT: %new = vllm_ir.view @aten.select.int(%old_2, 0, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %new_1 = torch.call @aten.copy_.default(%new, %y, false) reads(%new) writes(%new) returns [0] : (!vllm_ir.buffer<6xf32, offset = 12>, tensor<6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %sum = torch.call @aten.add.Tensor(%old_2, %old, alpha = 1) reads(%old_2) : (!vllm_ir.buffer<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: %0 = vllm_ir.read %old_2 : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
// CHECK-NEXT: vllm_ir.return (%0, %row, %sum) : tensor<4x6xf32>, tensor<6xf32>, tensor<4x6xf32>
// CHECK-NEXT: }
vllm_ir.func functional @both(%x: tensor<4x6xf32>, %y: tensor<6xf32>) -> (tensor<4x6xf32>, tensor<6xf32>, tensor<4x6xf32>) {
  %old = torch.call @aten.mul.Tensor(%x, 2) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %row = torch.call @aten.select.int(%old, 0, 2) : (tensor<4x6xf32>) -> tensor<6xf32>
  %new = torch.call @aten.select_scatter.default(%old, %y, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  %sum = torch.call @aten.add.Tensor(%new, %old, alpha = 1) : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  vllm_ir.return (%new, %row, %sum) : tensor<4x6xf32>, tensor<6xf32>, tensor<4x6xf32>
}

// Windows that overlap: the row crosses the column. It is needed with the new value, and cannot be used before.
// CHECK-LABEL: vllm_ir.func @overlap(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) -> tensor<f32> {
// CHECK-NEXT: %column = vllm_ir.view @aten.select.int(%x, 1, 3) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<4xf32, strides = [6], offset = 3>
// CHECK-NEXT: %column_1 = torch.call @aten.clone.default(%column, memory_format = none) reads(%column) attributes {vllm_ir.reason = "%column is overwritten by @aten.select_scatter.default and still needed by @aten.dot.default"} : (!vllm_ir.buffer<4xf32, strides = [6], offset = 3>) -> tensor<4xf32>
// CHECK-NEXT: %new = vllm_ir.view @aten.select.int(%x, 0, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %new_1 = torch.call @aten.copy_.default(%new, %y, false) reads(%new) writes(%new) returns [0] : (!vllm_ir.buffer<6xf32, offset = 12>, tensor<6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %after = vllm_ir.view @aten.select.int(%x, 1, 3) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<4xf32, strides = [6], offset = 3>
// CHECK-NEXT: %product = torch.call @aten.dot.default(%column_1, %after) reads(%after) : (tensor<4xf32>, !vllm_ir.buffer<4xf32, strides = [6], offset = 3>) -> tensor<f32>
// CHECK-NEXT: vllm_ir.return %product : tensor<f32>
// CHECK-NEXT: }
vllm_ir.func functional @overlap(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) -> tensor<f32> {
  %old = vllm_ir.read %x : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
  %column = torch.call @aten.select.int(%old, 1, 3) : (tensor<4x6xf32>) -> tensor<4xf32, #vllm_ir.layout<strides = [6]>>
  %new = torch.call @aten.select_scatter.default(%old, %y, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  %after = torch.call @aten.select.int(%new, 1, 3) : (tensor<4x6xf32>) -> tensor<4xf32, #vllm_ir.layout<strides = [6]>>
  %product = torch.call @aten.dot.default(%column, %after) : (tensor<4xf32, #vllm_ir.layout<strides = [6]>>, tensor<4xf32, #vllm_ir.layout<strides = [6]>>) -> tensor<f32>
  vllm_ir.write %new, %x : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
  vllm_ir.return %product : tensor<f32>
}

// A kernel that writes one operand must not see the write in another.
// CHECK-LABEL: vllm_ir.func @twice(%x: !vllm_ir.buffer<6xf32> {vllm_ir.mutated}) -> tensor<f32> {
// CHECK-NEXT: %old = torch.call @aten.clone.default(%x, memory_format = none) reads(%x) attributes {vllm_ir.reason = "%old is still needed by @eliminate_lit.bump.default"} : (!vllm_ir.buffer<6xf32>) -> tensor<6xf32>
// CHECK-NEXT: %old_1 = vllm_ir.alloc %old : tensor<6xf32> -> !vllm_ir.buffer<6xf32>
// CHECK-NEXT: %sum = torch.call @eliminate_lit.bump.default(%old_1, %x) reads(%old_1, %x) writes(%old_1) : (!vllm_ir.buffer<6xf32>, !vllm_ir.buffer<6xf32>) -> tensor<f32>
// CHECK-NEXT: %0 = vllm_ir.read %old_1 : !vllm_ir.buffer<6xf32> -> tensor<6xf32>
// CHECK-NEXT: vllm_ir.write %0, %x : tensor<6xf32>, !vllm_ir.buffer<6xf32>
// CHECK-NEXT: vllm_ir.return %sum : tensor<f32>
// CHECK-NEXT: }
vllm_ir.func functional @twice(%x: !vllm_ir.buffer<6xf32> {vllm_ir.mutated}) -> tensor<f32> {
  %old = vllm_ir.read %x : !vllm_ir.buffer<6xf32> -> tensor<6xf32>
  %sum, %new = torch.call @eliminate_lit.bump.default(%old, %old as 1) updates [0] : (tensor<6xf32>, tensor<6xf32>) -> (tensor<f32>, tensor<6xf32>)
  vllm_ir.write %new, %x : tensor<6xf32>, !vllm_ir.buffer<6xf32>
  vllm_ir.return %sum : tensor<f32>
}

// Nor write the same memory twice: one of the operands is a copy, and its new value is copied back.
// CHECK-LABEL: vllm_ir.func @written_twice(%x: !vllm_ir.buffer<6xf32> {vllm_ir.mutated}, %by: tensor<6xf32>) -> tensor<6xf32> {
// CHECK-NEXT: %old = torch.call @aten.clone.default(%x, memory_format = none) reads(%x) attributes {vllm_ir.reason = "%old is still needed by @eliminate_lit.rotate.default"} : (!vllm_ir.buffer<6xf32>) -> tensor<6xf32>
// CHECK-NEXT: %old_1 = vllm_ir.alloc %old : tensor<6xf32> -> !vllm_ir.buffer<6xf32>
// CHECK-NEXT: torch.call @eliminate_lit.rotate.default(%x, %old_1, %by) reads(%x, %old_1) writes(%x, %old_1) : (!vllm_ir.buffer<6xf32>, !vllm_ir.buffer<6xf32>, tensor<6xf32>) -> ()
// CHECK-NEXT: %q = torch.call @aten.clone.default(%x, memory_format = none) reads(%x) attributes {vllm_ir.reason = "%q is overwritten by vllm_ir.write and returned"} : (!vllm_ir.buffer<6xf32>) -> tensor<6xf32>
// CHECK-NEXT: %0 = vllm_ir.read %old_1 : !vllm_ir.buffer<6xf32> -> tensor<6xf32>
// CHECK-NEXT: vllm_ir.write %0, %x : tensor<6xf32>, !vllm_ir.buffer<6xf32>
// CHECK-NEXT: vllm_ir.return %q : tensor<6xf32>
// CHECK-NEXT: }
vllm_ir.func functional @written_twice(%x: !vllm_ir.buffer<6xf32> {vllm_ir.mutated}, %by: tensor<6xf32>) -> tensor<6xf32> {
  %old = vllm_ir.read %x : !vllm_ir.buffer<6xf32> -> tensor<6xf32>
  %q, %k = torch.call @eliminate_lit.rotate.default(%old, %old as 1, %by) updates [0, 1] : (tensor<6xf32>, tensor<6xf32>, tensor<6xf32>) -> (tensor<6xf32>, tensor<6xf32>)
  vllm_ir.write %k, %x : tensor<6xf32>, !vllm_ir.buffer<6xf32>
  vllm_ir.return %q : tensor<6xf32>
}

// A row whose number is known only at run time is anywhere in the matrix: the copy of it is not.
// CHECK-LABEL: vllm_ir.func @unknown_row(%i: i64, %x: tensor<4x6xf32>, %mask: tensor<6xi1>) -> tensor<6xf32> {
// CHECK-NEXT: %old = torch.call @aten.mul.Tensor(%x, 2) : (tensor<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: %row = torch.call @aten.select.int(%old, 0, %i) : (tensor<4x6xf32>, i64) -> tensor<6xf32>
// CHECK-NEXT: %row_1 = torch.call @aten.clone.default(%row, memory_format = none) attributes {vllm_ir.reason = "the window of %row is not known at compile time"} : (tensor<6xf32>) -> tensor<6xf32>
// CHECK-NEXT: %row_2 = vllm_ir.alloc %row_1 : tensor<6xf32> -> !vllm_ir.buffer<6xf32>
// CHECK-NEXT: %new = torch.call @aten.masked_fill_.Scalar(%row_2, %mask, 3) reads(%row_2) writes(%row_2) returns [0] : (!vllm_ir.buffer<6xf32>, tensor<6xi1>) -> !vllm_ir.buffer<6xf32>
// CHECK-NEXT: %0 = vllm_ir.read %row_2 : !vllm_ir.buffer<6xf32> -> tensor<6xf32>
// CHECK-NEXT: vllm_ir.return %0 : tensor<6xf32>
// CHECK-NEXT: }
vllm_ir.func functional @unknown_row(%i: i64, %x: tensor<4x6xf32>, %mask: tensor<6xi1>) -> tensor<6xf32> {
  %old = torch.call @aten.mul.Tensor(%x, 2) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %row = torch.call @aten.select.int(%old, 0, %i) : (tensor<4x6xf32>, i64) -> tensor<6xf32>
  %new = torch.call @aten.masked_fill.Scalar(%row, %mask, 3) : (tensor<6xf32>, tensor<6xi1>) -> tensor<6xf32>
  vllm_ir.return %new : tensor<6xf32>
}

// A kernel reads a row of the matrix that it writes: the row is copied, which is smaller.
// CHECK-LABEL: vllm_ir.func @part(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}) -> tensor<f32> {
// CHECK-NEXT: %row = vllm_ir.view @aten.select.int(%x, 0, 1) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 6>
// CHECK-NEXT: %row_1 = torch.call @aten.clone.default(%row, memory_format = none) reads(%row) attributes {vllm_ir.reason = "%row shares the memory that @eliminate_lit.bump.default writes"} : (!vllm_ir.buffer<6xf32, offset = 6>) -> tensor<6xf32>
// CHECK-NEXT: %sum = torch.call @eliminate_lit.bump.default(%x, %row_1) reads(%x) writes(%x) : (!vllm_ir.buffer<4x6xf32>, tensor<6xf32>) -> tensor<f32>
// CHECK-NEXT: vllm_ir.return %sum : tensor<f32>
// CHECK-NEXT: }
vllm_ir.func functional @part(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}) -> tensor<f32> {
  %old = vllm_ir.read %x : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
  %row = torch.call @aten.select.int(%old, 0, 1) : (tensor<4x6xf32>) -> tensor<6xf32>
  %sum, %new = torch.call @eliminate_lit.bump.default(%old, %row) updates [0] : (tensor<4x6xf32>, tensor<6xf32>) -> (tensor<f32>, tensor<4x6xf32>)
  vllm_ir.write %new, %x : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
  vllm_ir.return %sum : tensor<f32>
}

// An operator that reads what it could write as another argument as well computes its result anew.
// CHECK-LABEL: vllm_ir.func @itself(%x: !vllm_ir.buffer<4x4xf32> {vllm_ir.mutated}, %i: tensor<4xi64>) {
// CHECK-NEXT: %new = torch.call @aten.index_add.default(%x, 0, %i, %x, alpha = 1) reads(%x) : (!vllm_ir.buffer<4x4xf32>, tensor<4xi64>) -> tensor<4x4xf32>
// CHECK-NEXT: vllm_ir.write %new, %x : tensor<4x4xf32>, !vllm_ir.buffer<4x4xf32>
// CHECK-NEXT: vllm_ir.return ()
// CHECK-NEXT: }
vllm_ir.func functional @itself(%x: !vllm_ir.buffer<4x4xf32> {vllm_ir.mutated}, %i: tensor<4xi64>) {
  %old = vllm_ir.read %x : !vllm_ir.buffer<4x4xf32> -> tensor<4x4xf32>
  %new = torch.call @aten.index_add.default(%old, 0, %i, %old, alpha = 1) : (tensor<4x4xf32>, tensor<4xi64>) -> tensor<4x4xf32>
  vllm_ir.write %new, %x : tensor<4x4xf32>, !vllm_ir.buffer<4x4xf32>
  vllm_ir.return ()
}

// A copy of a column that is returned has the strides that eager mode gives the column.
// CHECK-LABEL: vllm_ir.func @column(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) -> tensor<4xf32, #vllm_ir.layout<strides = [6]>> {
// CHECK-NEXT: %column = vllm_ir.view @aten.select.int(%x, 1, 3) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<4xf32, strides = [6], offset = 3>
// CHECK-NEXT: %column_1 = torch.call @aten.clone.default(%column, memory_format = none) reads(%column) attributes {vllm_ir.reason = "%column is overwritten by @aten.select_scatter.default and returned"} : (!vllm_ir.buffer<4xf32, strides = [6], offset = 3>) -> tensor<4xf32, #vllm_ir.layout<strides = [6]>>
// CHECK-NEXT: %new = vllm_ir.view @aten.select.int(%x, 0, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %new_1 = torch.call @aten.copy_.default(%new, %y, false) reads(%new) writes(%new) returns [0] : (!vllm_ir.buffer<6xf32, offset = 12>, tensor<6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: vllm_ir.return %column_1 : tensor<4xf32, #vllm_ir.layout<strides = [6]>>
// CHECK-NEXT: }
vllm_ir.func functional @column(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) -> tensor<4xf32, #vllm_ir.layout<strides = [6]>> {
  %old = vllm_ir.read %x : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
  %column = torch.call @aten.select.int(%old, 1, 3) : (tensor<4x6xf32>) -> tensor<4xf32, #vllm_ir.layout<strides = [6]>>
  %new = torch.call @aten.select_scatter.default(%old, %y, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  vllm_ir.write %new, %x : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
  vllm_ir.return %column : tensor<4xf32, #vllm_ir.layout<strides = [6]>>
}

// A layer of dynamic size is part of the cache that is returned.
// CHECK-LABEL: vllm_ir.func @dynamic(%s0: i64 {vllm_ir.symbol = "s0"}, %cache: !vllm_ir.buffer<2x?xf32, sizes = [2, "s0"]> {vllm_ir.mutated}, %x: tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>) -> tensor<2x?xf32, #vllm_ir.layout<sizes = [2, "s0"]>> {
// CHECK-NEXT: %old = torch.call @aten.clone.default(%cache, memory_format = none) reads(%cache) attributes {vllm_ir.reason = "%old is overwritten by @aten.select_scatter.default and returned"} : (!vllm_ir.buffer<2x?xf32, sizes = [2, "s0"]>) -> tensor<2x?xf32, #vllm_ir.layout<sizes = [2, "s0"]>>
// CHECK-NEXT: %new = vllm_ir.view @aten.select.int(%cache, 0, 1) : (!vllm_ir.buffer<2x?xf32, sizes = [2, "s0"]>) -> !vllm_ir.buffer<?xf32, sizes = ["s0"], offset = "s0">
// CHECK-NEXT: %new_1 = torch.call @aten.copy_.default(%new, %x, false) reads(%new) writes(%new) returns [0] : (!vllm_ir.buffer<?xf32, sizes = ["s0"], offset = "s0">, tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>) -> !vllm_ir.buffer<?xf32, sizes = ["s0"], offset = "s0">
// CHECK-NEXT: vllm_ir.return %old : tensor<2x?xf32, #vllm_ir.layout<sizes = [2, "s0"]>>
// CHECK-NEXT: }
vllm_ir.func functional @dynamic(%s0: i64 {vllm_ir.symbol = "s0"}, %cache: !vllm_ir.buffer<2x?xf32, sizes = [2, "s0"]> {vllm_ir.mutated}, %x: tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>) -> tensor<2x?xf32, #vllm_ir.layout<sizes = [2, "s0"]>> {
  %old = vllm_ir.read %cache : !vllm_ir.buffer<2x?xf32, sizes = [2, "s0"]> -> tensor<2x?xf32, #vllm_ir.layout<sizes = [2, "s0"]>>
  %new = torch.call @aten.select_scatter.default(%old, %x, 0, 1) : (tensor<2x?xf32, #vllm_ir.layout<sizes = [2, "s0"]>>, tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>) -> tensor<2x?xf32, #vllm_ir.layout<sizes = [2, "s0"]>>
  vllm_ir.write %new, %cache : tensor<2x?xf32, #vllm_ir.layout<sizes = [2, "s0"]>>, !vllm_ir.buffer<2x?xf32, sizes = [2, "s0"]>
  vllm_ir.return %old : tensor<2x?xf32, #vllm_ir.layout<sizes = [2, "s0"]>>
}

// Reasons name lines of the user's program.
// CHECK-LABEL: vllm_ir.func @located(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) -> tensor<4x6xf32> {
// CHECK-NEXT: %old = torch.call @aten.clone.default(%x, memory_format = none) reads(%x) attributes {vllm_ir.reason = "%old is overwritten by @aten.select_scatter.default at model.py:12 and still needed by @aten.add.Tensor at model.py:13"} : (!vllm_ir.buffer<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: %new = vllm_ir.view @aten.select.int(%x, 0, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %new_1 = torch.call @aten.copy_.default(%new, %y, false) reads(%new) writes(%new) returns [0] : (!vllm_ir.buffer<6xf32, offset = 12>, tensor<6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %sum = torch.call @aten.add.Tensor(%x, %old, alpha = 1) reads(%x) : (!vllm_ir.buffer<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: vllm_ir.return %sum : tensor<4x6xf32>
// CHECK-NEXT: }
vllm_ir.func functional @located(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) -> tensor<4x6xf32> {
  %old = vllm_ir.read %x : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
  %new = torch.call @aten.select_scatter.default(%old, %y, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32> loc("model.py":12:5)
  %sum = torch.call @aten.add.Tensor(%new, %old, alpha = 1) : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32> loc("model.py":13:5)
  vllm_ir.write %new, %x : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
  vllm_ir.return %sum : tensor<4x6xf32>
}

// An operator that is given positions in memory must find there what eager mode finds: the copy stays.
// CHECK-LABEL: vllm_ir.func functional @positions(%x: tensor<4x6xf32>) -> tensor<2x2xf32> {
// CHECK-NEXT: %rows = torch.call @aten.slice.Tensor(%x, 0, 1, 4, 1) : (tensor<4x6xf32>) -> tensor<3x6xf32>
// CHECK-NEXT: %copy = torch.call @aten.clone.default(%rows, memory_format = none) attributes {vllm_ir.reason = "%copy is looked at by its position in memory"} : (tensor<3x6xf32>) -> tensor<3x6xf32>
// CHECK-NEXT: %corner = torch.call @aten.as_strided.default(%copy, [2, 2], [6, 1], 0) : (tensor<3x6xf32>) -> tensor<2x2xf32, #vllm_ir.layout<strides = [6, 1]>>
// CHECK-NEXT: %twice = torch.call @aten.mul.Tensor(%corner, 2) : (tensor<2x2xf32, #vllm_ir.layout<strides = [6, 1]>>) -> tensor<2x2xf32>
// CHECK-NEXT: vllm_ir.return %twice : tensor<2x2xf32>
// CHECK-NEXT: }
vllm_ir.func functional @positions(%x: tensor<4x6xf32>) -> tensor<2x2xf32> {
  %rows = torch.call @aten.slice.Tensor(%x, 0, 1, 4, 1) : (tensor<4x6xf32>) -> tensor<3x6xf32>
  %copy = torch.call @aten.clone.default(%rows, memory_format = none) : (tensor<3x6xf32>) -> tensor<3x6xf32>
  %corner = torch.call @aten.as_strided.default(%copy, [2, 2], [6, 1], 0) : (tensor<3x6xf32>) -> tensor<2x2xf32, #vllm_ir.layout<strides = [6, 1]>>
  %twice = torch.call @aten.mul.Tensor(%corner, 2) : (tensor<2x2xf32, #vllm_ir.layout<strides = [6, 1]>>) -> tensor<2x2xf32>
  vllm_ir.return %twice : tensor<2x2xf32>
}

// For the same reason, an update of a row gives a new value, and takes no memory in the middle of the matrix.
// CHECK-LABEL: vllm_ir.func functional @positions_of_update(%x: tensor<4x6xf32>, %mask: tensor<6xi1>) -> tensor<2xf32> {
// CHECK-NEXT: %old = torch.call @aten.mul.Tensor(%x, 2) : (tensor<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: %row = torch.call @aten.select.int(%old, 0, 2) : (tensor<4x6xf32>) -> tensor<6xf32>
// CHECK-NEXT: %new = torch.call @aten.masked_fill.Scalar(%row, %mask, 3) : (tensor<6xf32>, tensor<6xi1>) -> tensor<6xf32>
// CHECK-NEXT: %part = torch.call @aten.as_strided.default(%new, [2], [2], 1) : (tensor<6xf32>) -> tensor<2xf32, #vllm_ir.layout<strides = [2]>>
// CHECK-NEXT: %twice = torch.call @aten.mul.Tensor(%part, 2) : (tensor<2xf32, #vllm_ir.layout<strides = [2]>>) -> tensor<2xf32>
// CHECK-NEXT: vllm_ir.return %twice : tensor<2xf32>
// CHECK-NEXT: }
vllm_ir.func functional @positions_of_update(%x: tensor<4x6xf32>, %mask: tensor<6xi1>) -> tensor<2xf32> {
  %old = torch.call @aten.mul.Tensor(%x, 2) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %row = torch.call @aten.select.int(%old, 0, 2) : (tensor<4x6xf32>) -> tensor<6xf32>
  %new = torch.call @aten.masked_fill.Scalar(%row, %mask, 3) : (tensor<6xf32>, tensor<6xi1>) -> tensor<6xf32>
  %part = torch.call @aten.as_strided.default(%new, [2], [2], 1) : (tensor<6xf32>) -> tensor<2xf32, #vllm_ir.layout<strides = [2]>>
  %twice = torch.call @aten.mul.Tensor(%part, 2) : (tensor<2xf32, #vllm_ir.layout<strides = [2]>>) -> tensor<2xf32>
  vllm_ir.return %twice : tensor<2xf32>
}

// The program returns two tensors of the same contents: they are not one.
// CHECK-LABEL: vllm_ir.func functional @two_tensors(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
// CHECK-NEXT: %twice = torch.call @aten.mul.Tensor(%x, 2) : (tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: %0 = torch.call @aten.clone.default(%twice, memory_format = none) attributes {vllm_ir.reason = "%twice is returned as two tensors"} : (tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: vllm_ir.return (%twice, %0) : tensor<4xf32>, tensor<4xf32>
// CHECK-NEXT: }
vllm_ir.func functional @two_tensors(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %twice = torch.call @aten.mul.Tensor(%x, 2) : (tensor<4xf32>) -> tensor<4xf32>
  %copy = torch.call @aten.clone.default(%twice, memory_format = none) : (tensor<4xf32>) -> tensor<4xf32>
  vllm_ir.return (%twice, %copy) : tensor<4xf32>, tensor<4xf32>
}

// The second scatter replaces another row than the first: the old row is still in its result.
// CHECK-LABEL: vllm_ir.func @not_replaced(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) -> tensor<6xf32> {
// CHECK-NEXT: %old = torch.call @aten.clone.default(%x, memory_format = none) reads(%x) attributes {vllm_ir.reason = "%old is overwritten by @aten.select_scatter.default and still needed by vllm_ir.write"} : (!vllm_ir.buffer<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: %old_1 = vllm_ir.alloc %old : tensor<4x6xf32> -> !vllm_ir.buffer<4x6xf32>
// CHECK-NEXT: %first = vllm_ir.view @aten.select.int(%x, 0, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %first_1 = torch.call @aten.copy_.default(%first, %y, false) reads(%first) writes(%first) returns [0] : (!vllm_ir.buffer<6xf32, offset = 12>, tensor<6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %row = vllm_ir.view @aten.select.int(%x, 0, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %next = torch.call @aten.mul.Tensor(%row, 3) reads(%row) : (!vllm_ir.buffer<6xf32, offset = 12>) -> tensor<6xf32>
// CHECK-NEXT: %new = vllm_ir.view @aten.select.int(%old_1, 0, 3) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 18>
// CHECK-NEXT: %new_1 = torch.call @aten.copy_.default(%new, %next, false) reads(%new) writes(%new) returns [0] : (!vllm_ir.buffer<6xf32, offset = 18>, tensor<6xf32>) -> !vllm_ir.buffer<6xf32, offset = 18>
// CHECK-NEXT: %0 = vllm_ir.read %old_1 : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
// CHECK-NEXT: vllm_ir.write %0, %x : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
// CHECK-NEXT: vllm_ir.return %next : tensor<6xf32>
// CHECK-NEXT: }
vllm_ir.func functional @not_replaced(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) -> tensor<6xf32> {
  %old = vllm_ir.read %x : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
  %first = torch.call @aten.select_scatter.default(%old, %y, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  %row = torch.call @aten.select.int(%first, 0, 2) : (tensor<4x6xf32>) -> tensor<6xf32>
  %next = torch.call @aten.mul.Tensor(%row, 3) : (tensor<6xf32>) -> tensor<6xf32>
  %new = torch.call @aten.select_scatter.default(%old, %next, 0, 3) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  vllm_ir.write %new, %x : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
  vllm_ir.return %next : tensor<6xf32>
}

// A piece that overlaps nothing may be other elements of an expanded value as well.
// CHECK-LABEL: vllm_ir.func @piece_of_expanded(%x: tensor<f32>, %cache: !vllm_ir.buffer<3xf32> {vllm_ir.mutated}) {
// CHECK-NEXT: %row = torch.call @aten.neg.default(%x) : (tensor<f32>) -> tensor<f32>
// CHECK-NEXT: %all = torch.call @aten.expand.default(%row, [3], implicit = false) : (tensor<f32>) -> tensor<3xf32>
// CHECK-NEXT: %one = torch.call @aten.ones.default([1], dtype = f32, layout = none, device = none, pin_memory = none) : () -> tensor<1xf32>
// CHECK-NEXT: %all_1 = torch.call @aten.clone.default(%all, memory_format = none) attributes {vllm_ir.reason = "the window of %all overlaps itself"} : (tensor<3xf32>) -> tensor<3xf32>
// CHECK-NEXT: %all_2 = vllm_ir.alloc %all_1 : tensor<3xf32> -> !vllm_ir.buffer<3xf32>
// CHECK-NEXT: %put = vllm_ir.view @aten.slice.Tensor(%all_2, 0, 1, 2, 1) : (!vllm_ir.buffer<3xf32>) -> !vllm_ir.buffer<1xf32, offset = 1>
// CHECK-NEXT: %put_1 = torch.call @aten.copy_.default(%put, %one, false) reads(%put) writes(%put) returns [0] : (!vllm_ir.buffer<1xf32, offset = 1>, tensor<1xf32>) -> !vllm_ir.buffer<1xf32, offset = 1>
// CHECK-NEXT: %0 = vllm_ir.read %all_2 : !vllm_ir.buffer<3xf32> -> tensor<3xf32>
// CHECK-NEXT: vllm_ir.write %0, %cache : tensor<3xf32>, !vllm_ir.buffer<3xf32>
// CHECK-NEXT: vllm_ir.return ()
// CHECK-NEXT: }
vllm_ir.func functional @piece_of_expanded(%x: tensor<f32>, %cache: !vllm_ir.buffer<3xf32> {vllm_ir.mutated}) {
  %row = torch.call @aten.neg.default(%x) : (tensor<f32>) -> tensor<f32>
  %all = torch.call @aten.expand.default(%row, [3], implicit = false) : (tensor<f32>) -> tensor<3xf32>
  %one = torch.call @aten.ones.default([1], dtype = f32, layout = none, device = none, pin_memory = none) : () -> tensor<1xf32>
  %put = torch.call @aten.slice_scatter.default(%all, %one, 0, 1, 2, 1) : (tensor<3xf32>, tensor<1xf32>) -> tensor<3xf32>
  vllm_ir.write %put, %cache : tensor<3xf32>, !vllm_ir.buffer<3xf32>
  vllm_ir.return ()
}

// A value that is laid out otherwise than its type says is written where it is.
// CHECK-LABEL: vllm_ir.func @written_relayout(%x: tensor<2x4xf32, #vllm_ir.layout<strides = [1, 2]>>, %y: tensor<f32>) -> tensor<2x4xf32> {
// CHECK-NEXT: %new = torch.call @aten.neg.default(%x) : (tensor<2x4xf32, #vllm_ir.layout<strides = [1, 2]>>) -> tensor<2x4xf32, #vllm_ir.layout<strides = [1, 2]>>
// CHECK-NEXT: %new_1 = vllm_ir.alloc %new : tensor<2x4xf32, #vllm_ir.layout<strides = [1, 2]>> -> !vllm_ir.buffer<2x4xf32, strides = [1, 2]>
// CHECK-NEXT: %piece = vllm_ir.view @aten.select.int(%new_1, 0, 1) : (!vllm_ir.buffer<2x4xf32, strides = [1, 2]>) -> !vllm_ir.buffer<4xf32, strides = [2], offset = 1>
// CHECK-NEXT: %more = torch.call @aten.add.Tensor(%piece, %y, alpha = 1) reads(%piece) : (!vllm_ir.buffer<4xf32, strides = [2], offset = 1>, tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT: %put = vllm_ir.view @aten.select.int(%new_1, 0, 1) : (!vllm_ir.buffer<2x4xf32, strides = [1, 2]>) -> !vllm_ir.buffer<4xf32, strides = [2], offset = 1>
// CHECK-NEXT: %put_1 = torch.call @aten.copy_.default(%put, %more, false) reads(%put) writes(%put) returns [0] : (!vllm_ir.buffer<4xf32, strides = [2], offset = 1>, tensor<4xf32>) -> !vllm_ir.buffer<4xf32, strides = [2], offset = 1>
// CHECK-NEXT: %0 = vllm_ir.read %new_1 : !vllm_ir.buffer<2x4xf32, strides = [1, 2]> -> tensor<2x4xf32>
// CHECK-NEXT: vllm_ir.return %0 : tensor<2x4xf32>
// CHECK-NEXT: }
vllm_ir.func functional @written_relayout(%x: tensor<2x4xf32, #vllm_ir.layout<strides = [1, 2]>>, %y: tensor<f32>) -> tensor<2x4xf32> {
  %new = torch.call @aten.neg.default(%x) : (tensor<2x4xf32, #vllm_ir.layout<strides = [1, 2]>>) -> tensor<2x4xf32, #vllm_ir.layout<strides = [1, 2]>>
  %same = vllm_ir.relayout %new : tensor<2x4xf32, #vllm_ir.layout<strides = [1, 2]>> -> tensor<2x4xf32>
  %piece = torch.call @aten.select.int(%same, 0, 1) : (tensor<2x4xf32>) -> tensor<4xf32>
  %more = torch.call @aten.add.Tensor(%piece, %y, alpha = 1) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %put = torch.call @aten.select_scatter.default(%same, %more, 0, 1) : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  vllm_ir.return %put : tensor<2x4xf32>
}

// A copy of a part that is returned stays: without it, the caller would hold the whole.
// CHECK-LABEL: vllm_ir.func functional @returned_part(%x: tensor<4x6xf32>) -> tensor<6xf32> {
// CHECK-NEXT: %sum = torch.call @aten.add.Tensor(%x, %x, alpha = 1) : (tensor<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: %row = torch.call @aten.select.int(%sum, 0, 0) : (tensor<4x6xf32>) -> tensor<6xf32>
// CHECK-NEXT: %copy = torch.call @aten.clone.default(%row, memory_format = none) attributes {vllm_ir.reason = "%copy is returned, and would keep the memory around it alive"} : (tensor<6xf32>) -> tensor<6xf32>
// CHECK-NEXT: vllm_ir.return %copy : tensor<6xf32>
// CHECK-NEXT: }
vllm_ir.func functional @returned_part(%x: tensor<4x6xf32>) -> tensor<6xf32> {
  %sum = torch.call @aten.add.Tensor(%x, %x, alpha = 1) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %row = torch.call @aten.select.int(%sum, 0, 0) : (tensor<4x6xf32>) -> tensor<6xf32>
  %copy = torch.call @aten.clone.default(%row, memory_format = none) : (tensor<6xf32>) -> tensor<6xf32>
  vllm_ir.return %copy : tensor<6xf32>
}

// A copy of all of it is dropped, and so is one that is only looked at.
// CHECK-LABEL: vllm_ir.func functional @returned_whole(%x: tensor<4x6xf32>) -> (tensor<24xf32>, tensor<6xf32>) {
// CHECK-NEXT: %sum = torch.call @aten.add.Tensor(%x, %x, alpha = 1) : (tensor<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: %flat = torch.call @aten.view.default(%sum, [24]) : (tensor<4x6xf32>) -> tensor<24xf32>
// CHECK-NEXT: %row = torch.call @aten.select.int(%sum, 0, 0) : (tensor<4x6xf32>) -> tensor<6xf32>
// CHECK-NEXT: %twice = torch.call @aten.neg.default(%row) : (tensor<6xf32>) -> tensor<6xf32>
// CHECK-NEXT: vllm_ir.return (%flat, %twice) : tensor<24xf32>, tensor<6xf32>
// CHECK-NEXT: }
vllm_ir.func functional @returned_whole(%x: tensor<4x6xf32>) -> (tensor<24xf32>, tensor<6xf32>) {
  %sum = torch.call @aten.add.Tensor(%x, %x, alpha = 1) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %flat = torch.call @aten.view.default(%sum, [24]) : (tensor<4x6xf32>) -> tensor<24xf32>
  %all = torch.call @aten.clone.default(%flat, memory_format = none) : (tensor<24xf32>) -> tensor<24xf32>
  %row = torch.call @aten.select.int(%sum, 0, 0) : (tensor<4x6xf32>) -> tensor<6xf32>
  %copy = torch.call @aten.clone.default(%row, memory_format = none) : (tensor<6xf32>) -> tensor<6xf32>
  %twice = torch.call @aten.neg.default(%copy) : (tensor<6xf32>) -> tensor<6xf32>
  vllm_ir.return (%all, %twice) : tensor<24xf32>, tensor<6xf32>
}
