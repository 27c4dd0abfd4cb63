// RUN: vllm-ir-opt %s --load %S/operators.py -p eliminate-clones | filecheck %s

// Where an update is not written in place, the copy that it is written to says why.

// A caller who did not ask for a write does not get one.
vllm_ir.func functional @callers(%x: tensor<4x6xf32>, %y: tensor<6xf32>) -> tensor<4x6xf32> {
  %new = torch.call @aten.select_scatter.default(%x, %y, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  vllm_ir.return %new : tensor<4x6xf32>
}

// Only buffers have memory to give away.
vllm_ir.func functional @donated_value(%x: tensor<4x6xf32> {vllm_ir.donated}, %y: tensor<6xf32>) -> tensor<4x6xf32> {
  %new = torch.call @aten.select_scatter.default(%x, %y, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  vllm_ir.return %new : tensor<4x6xf32>
}

// A constant is the same at the next call. The copy that the program made itself is the one that stays.
vllm_ir.func functional @constant(%y: tensor<1xui8>) -> tensor<4xui8> {
  %c = torch.constant "00010203" : tensor<4xui8>
  %copy = torch.call @aten.clone.default(%c, memory_format = none) : (tensor<4xui8>) -> tensor<4xui8>
  %new = torch.call @aten.slice_scatter.default(%copy, %y, 0, 1, 2, 1) : (tensor<4xui8>, tensor<1xui8>) -> tensor<4xui8>
  vllm_ir.return %new : tensor<4xui8>
}

// Where a window lies that starts at a number known only at run time cannot be compared.
vllm_ir.func functional @unknown(%i: i64, %x: tensor<8xf32>, %y: tensor<2xf32>) -> tensor<8xf32> {
  %old = torch.call @aten.mul.Tensor(%x, 2) : (tensor<8xf32>) -> tensor<8xf32>
  %new = torch.call @aten.slice_scatter.default(%old, %y, 0, %i, 8, 3) : (tensor<8xf32>, tensor<2xf32>, i64) -> tensor<8xf32>
  vllm_ir.return %new : tensor<8xf32>
}

// Elements of an expanded window share memory: each would be written more than once.
vllm_ir.func functional @expanded(%x: tensor<1x6xf32>, %y: tensor<6xf32>) -> tensor<4x6xf32, #vllm_ir.layout<strides = [0, 1]>> {
  %row = torch.call @aten.mul.Tensor(%x, 2) : (tensor<1x6xf32>) -> tensor<1x6xf32>
  %old = torch.call @aten.expand.default(%row, [4, 6], implicit = false) : (tensor<1x6xf32>) -> tensor<4x6xf32, #vllm_ir.layout<strides = [0, 1]>>
  %mask = torch.call @aten.gt.Scalar(%y, 0) : (tensor<6xf32>) -> tensor<6xi1>
  %new = torch.call @aten.masked_fill.Scalar(%old, %mask, 3) : (tensor<4x6xf32, #vllm_ir.layout<strides = [0, 1]>>, tensor<6xi1>) -> tensor<4x6xf32, #vllm_ir.layout<strides = [0, 1]>>
  vllm_ir.return %new : tensor<4x6xf32, #vllm_ir.layout<strides = [0, 1]>>
}

// The copy has rows without gaps, the columns of the matrix have gaps.
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
vllm_ir.func functional @returned(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) -> tensor<6xf32> {
  %old = vllm_ir.read %x : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
  %row = torch.call @aten.select.int(%old, 0, 2) : (tensor<4x6xf32>) -> tensor<6xf32>
  %new = torch.call @aten.select_scatter.default(%old, %y, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  vllm_ir.write %new, %x : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
  vllm_ir.return %row : tensor<6xf32>
}

// A copy that the program made to keep the old value stays, at the place where it was made.
vllm_ir.func functional @kept(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) -> tensor<4x6xf32> {
  %old = vllm_ir.read %x : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
  %copy = torch.call @aten.clone.default(%old, memory_format = none) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %new = torch.call @aten.select_scatter.default(%old, %y, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  vllm_ir.write %new, %x : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
  vllm_ir.return %copy : tensor<4x6xf32>
}

// Both values are new memory: the copy is of the smaller.
vllm_ir.func functional @both(%x: tensor<4x6xf32>, %y: tensor<6xf32>) -> (tensor<4x6xf32>, tensor<6xf32>, tensor<4x6xf32>) {
  %old = torch.call @aten.mul.Tensor(%x, 2) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %row = torch.call @aten.select.int(%old, 0, 2) : (tensor<4x6xf32>) -> tensor<6xf32>
  %new = torch.call @aten.select_scatter.default(%old, %y, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  %sum = torch.call @aten.add.Tensor(%new, %old, alpha = 1) : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  vllm_ir.return (%new, %row, %sum) : tensor<4x6xf32>, tensor<6xf32>, tensor<4x6xf32>
}

// Windows that overlap: the row crosses the column. It is needed with the new value, and cannot be used before.
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
vllm_ir.func functional @twice(%x: !vllm_ir.buffer<6xf32> {vllm_ir.mutated}) -> tensor<f32> {
  %old = vllm_ir.read %x : !vllm_ir.buffer<6xf32> -> tensor<6xf32>
  %sum, %new = torch.call @eliminate_lit.bump.default(%old, %old as 1) updates [0] : (tensor<6xf32>, tensor<6xf32>) -> (tensor<f32>, tensor<6xf32>)
  vllm_ir.write %new, %x : tensor<6xf32>, !vllm_ir.buffer<6xf32>
  vllm_ir.return %sum : tensor<f32>
}

// Nor write the same memory twice: one of the operands is a copy, and its new value is copied back.
vllm_ir.func functional @written_twice(%x: !vllm_ir.buffer<6xf32> {vllm_ir.mutated}, %by: tensor<6xf32>) -> tensor<6xf32> {
  %old = vllm_ir.read %x : !vllm_ir.buffer<6xf32> -> tensor<6xf32>
  %q, %k = torch.call @eliminate_lit.rotate.default(%old, %old as 1, %by) updates [0, 1] : (tensor<6xf32>, tensor<6xf32>, tensor<6xf32>) -> (tensor<6xf32>, tensor<6xf32>)
  vllm_ir.write %k, %x : tensor<6xf32>, !vllm_ir.buffer<6xf32>
  vllm_ir.return %q : tensor<6xf32>
}
