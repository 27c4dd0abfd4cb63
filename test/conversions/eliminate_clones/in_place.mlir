// RUN: vllm-ir-opt %s --load %S/operators.py -p eliminate-clones | filecheck %s

// An update through a chain of views is written to a chain of windows. What is computed from the new value reads the
// memory, and nothing is left to be written in the end.
// CHECK-LABEL: vllm_ir.func @index_put(%cache: !vllm_ir.buffer<2x16x4xf32> {vllm_ir.mutated}, %slots: tensor<3xi64>, %x: tensor<3x4xf32>) -> tensor<16x4xf32> {
// CHECK-NEXT: %layer = vllm_ir.view @aten.select.int(%cache, 0, 1) : (!vllm_ir.buffer<2x16x4xf32>) -> !vllm_ir.buffer<16x4xf32, offset = 64>
// CHECK-NEXT: %put = torch.call @aten.index_put_.default(%layer, [%slots], %x, false) reads(%layer) writes(%layer) returns [0] : (!vllm_ir.buffer<16x4xf32, offset = 64>, tensor<3xi64>, tensor<3x4xf32>) -> !vllm_ir.buffer<16x4xf32, offset = 64>
// CHECK-NEXT: %seen = vllm_ir.view @aten.select.int(%cache, 0, 1) : (!vllm_ir.buffer<2x16x4xf32>) -> !vllm_ir.buffer<16x4xf32, offset = 64>
// CHECK-NEXT: %twice = torch.call @aten.mul.Tensor(%seen, 2) reads(%seen) : (!vllm_ir.buffer<16x4xf32, offset = 64>) -> tensor<16x4xf32>
// CHECK-NEXT: vllm_ir.return %twice : tensor<16x4xf32>
// CHECK-NEXT: }
vllm_ir.func functional @index_put(%cache: !vllm_ir.buffer<2x16x4xf32> {vllm_ir.mutated}, %slots: tensor<3xi64>, %x: tensor<3x4xf32>) -> tensor<16x4xf32> {
  %old = vllm_ir.read %cache : !vllm_ir.buffer<2x16x4xf32> -> tensor<2x16x4xf32>
  %layer = torch.call @aten.select.int(%old, 0, 1) : (tensor<2x16x4xf32>) -> tensor<16x4xf32>
  %put = torch.call @aten.index_put.default(%layer, [%slots], %x, false) : (tensor<16x4xf32>, tensor<3xi64>, tensor<3x4xf32>) -> tensor<16x4xf32>
  %new = torch.call @aten.select_scatter.default(%old, %put, 0, 1) : (tensor<2x16x4xf32>, tensor<16x4xf32>) -> tensor<2x16x4xf32>
  %seen = torch.call @aten.select.int(%new, 0, 1) : (tensor<2x16x4xf32>) -> tensor<16x4xf32>
  %twice = torch.call @aten.mul.Tensor(%seen, 2) : (tensor<16x4xf32>) -> tensor<16x4xf32>
  vllm_ir.write %new, %cache : tensor<2x16x4xf32>, !vllm_ir.buffer<2x16x4xf32>
  vllm_ir.return %twice : tensor<16x4xf32>
}

// A piece that is put into a base is copied to its window.
// CHECK-LABEL: vllm_ir.func @slice(%cache: !vllm_ir.buffer<16x4xf32> {vllm_ir.mutated}, %x: tensor<3x4xf32>) {
// CHECK-NEXT: %new = vllm_ir.view @aten.slice.Tensor(%cache, 0, 2, 5, 1) : (!vllm_ir.buffer<16x4xf32>) -> !vllm_ir.buffer<3x4xf32, offset = 8>
// CHECK-NEXT: %new_1 = torch.call @aten.copy_.default(%new, %x, false) reads(%new) writes(%new) returns [0] : (!vllm_ir.buffer<3x4xf32, offset = 8>, tensor<3x4xf32>) -> !vllm_ir.buffer<3x4xf32, offset = 8>
// CHECK-NEXT: vllm_ir.return ()
// CHECK-NEXT: }
vllm_ir.func functional @slice(%cache: !vllm_ir.buffer<16x4xf32> {vllm_ir.mutated}, %x: tensor<3x4xf32>) {
  %old = vllm_ir.read %cache : !vllm_ir.buffer<16x4xf32> -> tensor<16x4xf32>
  %new = torch.call @aten.slice_scatter.default(%old, %x, 0, 2, 5, 1) : (tensor<16x4xf32>, tensor<3x4xf32>) -> tensor<16x4xf32>
  vllm_ir.write %new, %cache : tensor<16x4xf32>, !vllm_ir.buffer<16x4xf32>
  vllm_ir.return ()
}

// Siblings do not overlap: the old second layer is read behind the write to the first.
// CHECK-LABEL: vllm_ir.func @siblings(%cache: !vllm_ir.buffer<2x16x4xf32> {vllm_ir.mutated}, %x: tensor<16x4xf32>) -> tensor<16x4xf32> {
// CHECK-NEXT: %second = vllm_ir.view @aten.select.int(%cache, 0, 1) : (!vllm_ir.buffer<2x16x4xf32>) -> !vllm_ir.buffer<16x4xf32, offset = 64>
// CHECK-NEXT: %new = vllm_ir.view @aten.select.int(%cache, 0, 0) : (!vllm_ir.buffer<2x16x4xf32>) -> !vllm_ir.buffer<16x4xf32>
// CHECK-NEXT: %new_1 = torch.call @aten.copy_.default(%new, %x, false) reads(%new) writes(%new) returns [0] : (!vllm_ir.buffer<16x4xf32>, tensor<16x4xf32>) -> !vllm_ir.buffer<16x4xf32>
// CHECK-NEXT: %first = vllm_ir.view @aten.select.int(%cache, 0, 0) : (!vllm_ir.buffer<2x16x4xf32>) -> !vllm_ir.buffer<16x4xf32>
// CHECK-NEXT: %sum = torch.call @aten.add.Tensor(%first, %second, alpha = 1) reads(%first, %second) : (!vllm_ir.buffer<16x4xf32>, !vllm_ir.buffer<16x4xf32, offset = 64>) -> tensor<16x4xf32>
// CHECK-NEXT: vllm_ir.return %sum : tensor<16x4xf32>
// CHECK-NEXT: }
vllm_ir.func functional @siblings(%cache: !vllm_ir.buffer<2x16x4xf32> {vllm_ir.mutated}, %x: tensor<16x4xf32>) -> tensor<16x4xf32> {
  %old = vllm_ir.read %cache : !vllm_ir.buffer<2x16x4xf32> -> tensor<2x16x4xf32>
  %second = torch.call @aten.select.int(%old, 0, 1) : (tensor<2x16x4xf32>) -> tensor<16x4xf32>
  %new = torch.call @aten.select_scatter.default(%old, %x, 0, 0) : (tensor<2x16x4xf32>, tensor<16x4xf32>) -> tensor<2x16x4xf32>
  %first = torch.call @aten.select.int(%new, 0, 0) : (tensor<2x16x4xf32>) -> tensor<16x4xf32>
  %sum = torch.call @aten.add.Tensor(%first, %second, alpha = 1) : (tensor<16x4xf32>, tensor<16x4xf32>) -> tensor<16x4xf32>
  vllm_ir.write %new, %cache : tensor<2x16x4xf32>, !vllm_ir.buffer<2x16x4xf32>
  vllm_ir.return %sum : tensor<16x4xf32>
}

// Columns of even and of odd number interleave, and do not overlap either.
// CHECK-LABEL: vllm_ir.func @interleaved(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<4x3xf32>) -> tensor<4x3xf32> {
// CHECK-NEXT: %odd = vllm_ir.view @aten.slice.Tensor(%x, 1, 1, 6, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<4x3xf32, strides = [6, 2], offset = 1>
// CHECK-NEXT: %new = vllm_ir.view @aten.slice.Tensor(%x, 1, 0, 6, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<4x3xf32, strides = [6, 2]>
// CHECK-NEXT: %new_1 = torch.call @aten.copy_.default(%new, %y, false) reads(%new) writes(%new) returns [0] : (!vllm_ir.buffer<4x3xf32, strides = [6, 2]>, tensor<4x3xf32>) -> !vllm_ir.buffer<4x3xf32, strides = [6, 2]>
// CHECK-NEXT: %even = vllm_ir.view @aten.slice.Tensor(%x, 1, 0, 6, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<4x3xf32, strides = [6, 2]>
// CHECK-NEXT: %sum = torch.call @aten.add.Tensor(%even, %odd, alpha = 1) reads(%even, %odd) : (!vllm_ir.buffer<4x3xf32, strides = [6, 2]>, !vllm_ir.buffer<4x3xf32, strides = [6, 2], offset = 1>) -> tensor<4x3xf32>
// CHECK-NEXT: vllm_ir.return %sum : tensor<4x3xf32>
// CHECK-NEXT: }
vllm_ir.func functional @interleaved(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<4x3xf32>) -> tensor<4x3xf32> {
  %old = vllm_ir.read %x : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
  %odd = torch.call @aten.slice.Tensor(%old, 1, 1, 6, 2) : (tensor<4x6xf32>) -> tensor<4x3xf32, #vllm_ir.layout<strides = [6, 2]>>
  %new = torch.call @aten.slice_scatter.default(%old, %y, 1, 0, 6, 2) : (tensor<4x6xf32>, tensor<4x3xf32>) -> tensor<4x6xf32>
  %even = torch.call @aten.slice.Tensor(%new, 1, 0, 6, 2) : (tensor<4x6xf32>) -> tensor<4x3xf32, #vllm_ir.layout<strides = [6, 2]>>
  %sum = torch.call @aten.add.Tensor(%even, %odd, alpha = 1) : (tensor<4x3xf32, #vllm_ir.layout<strides = [6, 2]>>, tensor<4x3xf32, #vllm_ir.layout<strides = [6, 2]>>) -> tensor<4x3xf32>
  vllm_ir.write %new, %x : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
  vllm_ir.return %sum : tensor<4x3xf32>
}

// Layers of a cache whose sizes are not known do not overlap, whatever the sizes are.
// CHECK-LABEL: vllm_ir.func @dynamic(%s0: i64 {vllm_ir.symbol = "s0"}, %cache: !vllm_ir.buffer<2x?x4xf32, sizes = [2, "s0", 4]> {vllm_ir.mutated}, %x: tensor<?x4xf32, #vllm_ir.layout<sizes = ["s0", 4]>>) -> tensor<?x4xf32, #vllm_ir.layout<sizes = ["s0", 4]>> {
// CHECK-NEXT: %second = vllm_ir.view @aten.select.int(%cache, 0, 1) : (!vllm_ir.buffer<2x?x4xf32, sizes = [2, "s0", 4]>) -> !vllm_ir.buffer<?x4xf32, sizes = ["s0", 4], offset = "4*s0">
// CHECK-NEXT: %new = vllm_ir.view @aten.select.int(%cache, 0, 0) : (!vllm_ir.buffer<2x?x4xf32, sizes = [2, "s0", 4]>) -> !vllm_ir.buffer<?x4xf32, sizes = ["s0", 4]>
// CHECK-NEXT: %new_1 = torch.call @aten.copy_.default(%new, %x, false) reads(%new) writes(%new) returns [0] : (!vllm_ir.buffer<?x4xf32, sizes = ["s0", 4]>, tensor<?x4xf32, #vllm_ir.layout<sizes = ["s0", 4]>>) -> !vllm_ir.buffer<?x4xf32, sizes = ["s0", 4]>
// CHECK-NEXT: %first = vllm_ir.view @aten.select.int(%cache, 0, 0) : (!vllm_ir.buffer<2x?x4xf32, sizes = [2, "s0", 4]>) -> !vllm_ir.buffer<?x4xf32, sizes = ["s0", 4]>
// CHECK-NEXT: %sum = torch.call @aten.add.Tensor(%first, %second, alpha = 1) reads(%first, %second) : (!vllm_ir.buffer<?x4xf32, sizes = ["s0", 4]>, !vllm_ir.buffer<?x4xf32, sizes = ["s0", 4], offset = "4*s0">) -> tensor<?x4xf32, #vllm_ir.layout<sizes = ["s0", 4]>>
// CHECK-NEXT: vllm_ir.return %sum : tensor<?x4xf32, #vllm_ir.layout<sizes = ["s0", 4]>>
// CHECK-NEXT: }
vllm_ir.func functional @dynamic(%s0: i64 {vllm_ir.symbol = "s0"}, %cache: !vllm_ir.buffer<2x?x4xf32, sizes = [2, "s0", 4]> {vllm_ir.mutated}, %x: tensor<?x4xf32, #vllm_ir.layout<sizes = ["s0", 4]>>) -> tensor<?x4xf32, #vllm_ir.layout<sizes = ["s0", 4]>> {
  %old = vllm_ir.read %cache : !vllm_ir.buffer<2x?x4xf32, sizes = [2, "s0", 4]> -> tensor<2x?x4xf32, #vllm_ir.layout<sizes = [2, "s0", 4]>>
  %second = torch.call @aten.select.int(%old, 0, 1) : (tensor<2x?x4xf32, #vllm_ir.layout<sizes = [2, "s0", 4]>>) -> tensor<?x4xf32, #vllm_ir.layout<sizes = ["s0", 4]>>
  %new = torch.call @aten.select_scatter.default(%old, %x, 0, 0) : (tensor<2x?x4xf32, #vllm_ir.layout<sizes = [2, "s0", 4]>>, tensor<?x4xf32, #vllm_ir.layout<sizes = ["s0", 4]>>) -> tensor<2x?x4xf32, #vllm_ir.layout<sizes = [2, "s0", 4]>>
  %first = torch.call @aten.select.int(%new, 0, 0) : (tensor<2x?x4xf32, #vllm_ir.layout<sizes = [2, "s0", 4]>>) -> tensor<?x4xf32, #vllm_ir.layout<sizes = ["s0", 4]>>
  %sum = torch.call @aten.add.Tensor(%first, %second, alpha = 1) : (tensor<?x4xf32, #vllm_ir.layout<sizes = ["s0", 4]>>, tensor<?x4xf32, #vllm_ir.layout<sizes = ["s0", 4]>>) -> tensor<?x4xf32, #vllm_ir.layout<sizes = ["s0", 4]>>
  vllm_ir.write %new, %cache : tensor<2x?x4xf32, #vllm_ir.layout<sizes = [2, "s0", 4]>>, !vllm_ir.buffer<2x?x4xf32, sizes = [2, "s0", 4]>
  vllm_ir.return %sum : tensor<?x4xf32, #vllm_ir.layout<sizes = ["s0", 4]>>
}

// A call that writes two windows of one storage writes both where they are.
// CHECK-LABEL: vllm_ir.func @two_windows(%qkv: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %by: tensor<4x2xf32>) {
// CHECK-NEXT: %q, %q_1, %q_2 = vllm_ir.view @aten.split.Tensor(%qkv, 2, 1) : (!vllm_ir.buffer<4x6xf32>) -> (!vllm_ir.buffer<4x2xf32, strides = [6, 1]>, !vllm_ir.buffer<4x2xf32, strides = [6, 1], offset = 2>, !vllm_ir.buffer<4x2xf32, strides = [6, 1], offset = 4>)
// CHECK-NEXT: torch.call @eliminate_lit.rotate.default(%q, %q_1, %by) reads(%q, %q_1) writes(%q, %q_1) : (!vllm_ir.buffer<4x2xf32, strides = [6, 1]>, !vllm_ir.buffer<4x2xf32, strides = [6, 1], offset = 2>, tensor<4x2xf32>) -> ()
// CHECK-NEXT: vllm_ir.return ()
// CHECK-NEXT: }
vllm_ir.func functional @two_windows(%qkv: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %by: tensor<4x2xf32>) {
  %old = vllm_ir.read %qkv : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
  %q, %k, %v = torch.call @aten.split.Tensor(%old, 2, 1) : (tensor<4x6xf32>) -> (tensor<4x2xf32, #vllm_ir.layout<strides = [6, 1]>>, tensor<4x2xf32, #vllm_ir.layout<strides = [6, 1]>>, tensor<4x2xf32, #vllm_ir.layout<strides = [6, 1]>>)
  %q_new, %k_new = torch.call @eliminate_lit.rotate.default(%q, %k, %by) updates [0, 1] : (tensor<4x2xf32, #vllm_ir.layout<strides = [6, 1]>>, tensor<4x2xf32, #vllm_ir.layout<strides = [6, 1]>>, tensor<4x2xf32>) -> (tensor<4x2xf32, #vllm_ir.layout<strides = [6, 1]>>, tensor<4x2xf32, #vllm_ir.layout<strides = [6, 1]>>)
  %new = torch.call @aten.slice_scatter.default(%old, %q_new, 1, 0, 2, 1) : (tensor<4x6xf32>, tensor<4x2xf32, #vllm_ir.layout<strides = [6, 1]>>) -> tensor<4x6xf32>
  %new_1 = torch.call @aten.slice_scatter.default(%new, %k_new, 1, 2, 4, 1) : (tensor<4x6xf32>, tensor<4x2xf32, #vllm_ir.layout<strides = [6, 1]>>) -> tensor<4x6xf32>
  vllm_ir.write %new_1, %qkv : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
  vllm_ir.return ()
}

// A value that is used no more gives its memory to the new one.
// CHECK-LABEL: vllm_ir.func @new_memory(%x: tensor<4x6xf32>, %y: tensor<6xf32>) -> tensor<4x6xf32> {
// CHECK-NEXT: %old = torch.call @aten.mul.Tensor(%x, 2) : (tensor<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: %old_1 = vllm_ir.alloc %old : tensor<4x6xf32> -> !vllm_ir.buffer<4x6xf32>
// CHECK-NEXT: %new = vllm_ir.view @aten.select.int(%old_1, 0, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %new_1 = torch.call @aten.copy_.default(%new, %y, false) reads(%new) writes(%new) returns [0] : (!vllm_ir.buffer<6xf32, offset = 12>, tensor<6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %0 = vllm_ir.read %old_1 : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
// CHECK-NEXT: vllm_ir.return %0 : tensor<4x6xf32>
// CHECK-NEXT: }
vllm_ir.func functional @new_memory(%x: tensor<4x6xf32>, %y: tensor<6xf32>) -> tensor<4x6xf32> {
  %old = torch.call @aten.mul.Tensor(%x, 2) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %new = torch.call @aten.select_scatter.default(%old, %y, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  vllm_ir.return %new : tensor<4x6xf32>
}

// The caller has donated its memory: it is written although the caller does not ask for the new contents.
// CHECK-LABEL: vllm_ir.func @donated(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.donated}, %y: tensor<6xf32>) -> tensor<4x6xf32> {
// CHECK-NEXT: %new = vllm_ir.view @aten.select.int(%x, 0, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %new_1 = torch.call @aten.copy_.default(%new, %y, false) reads(%new) writes(%new) returns [0] : (!vllm_ir.buffer<6xf32, offset = 12>, tensor<6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %twice = torch.call @aten.mul.Tensor(%x, 2) reads(%x) : (!vllm_ir.buffer<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: vllm_ir.return %twice : tensor<4x6xf32>
// CHECK-NEXT: }
vllm_ir.func functional @donated(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.donated}, %y: tensor<6xf32>) -> tensor<4x6xf32> {
  %old = vllm_ir.read %x : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
  %new = torch.call @aten.select_scatter.default(%old, %y, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  %twice = torch.call @aten.mul.Tensor(%new, 2) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  vllm_ir.return %twice : tensor<4x6xf32>
}

// Copies of the program that nobody can tell from their source are dropped.
// CHECK-LABEL: vllm_ir.func @clones(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) {
// CHECK-NEXT: %new = vllm_ir.view @aten.select.int(%x, 0, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %new_1 = torch.call @aten.copy_.default(%new, %y, false) reads(%new) writes(%new) returns [0] : (!vllm_ir.buffer<6xf32, offset = 12>, tensor<6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: vllm_ir.return ()
// CHECK-NEXT: }
vllm_ir.func functional @clones(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) {
  %old = vllm_ir.read %x : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
  %copy = torch.call @aten.clone.default(%old, memory_format = none) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %new = torch.call @aten.select_scatter.default(%copy, %y, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  %again = torch.call @aten.clone.default(%new, memory_format = none) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  vllm_ir.write %again, %x : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
  vllm_ir.return ()
}

// One that changes strides stays.
// CHECK-LABEL: vllm_ir.func functional @layout(%x: tensor<4x6xf32>) -> tensor<6x4xf32> {
// CHECK-NEXT: %columns = torch.call @aten.t.default(%x) : (tensor<4x6xf32>) -> tensor<6x4xf32, #vllm_ir.layout<strides = [1, 6]>>
// CHECK-NEXT: %copy = torch.call @aten.clone.default(%columns, memory_format = #torch.memory_format<"contiguous_format">) : (tensor<6x4xf32, #vllm_ir.layout<strides = [1, 6]>>) -> tensor<6x4xf32>
// CHECK-NEXT: vllm_ir.return %copy : tensor<6x4xf32>
// CHECK-NEXT: }
vllm_ir.func functional @layout(%x: tensor<4x6xf32>) -> tensor<6x4xf32> {
  %columns = torch.call @aten.t.default(%x) : (tensor<4x6xf32>) -> tensor<6x4xf32, #vllm_ir.layout<strides = [1, 6]>>
  %copy = torch.call @aten.clone.default(%columns, memory_format = #torch.memory_format<"contiguous_format">) : (tensor<6x4xf32, #vllm_ir.layout<strides = [1, 6]>>) -> tensor<6x4xf32>
  vllm_ir.return %copy : tensor<6x4xf32>
}

// The old row is used later, but all that becomes of it is replaced by another scatter.
// CHECK-LABEL: vllm_ir.func @replaced(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) -> tensor<6xf32> {
// CHECK-NEXT: %first = vllm_ir.view @aten.select.int(%x, 0, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %first_1 = torch.call @aten.copy_.default(%first, %y, false) reads(%first) writes(%first) returns [0] : (!vllm_ir.buffer<6xf32, offset = 12>, tensor<6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %row = vllm_ir.view @aten.select.int(%x, 0, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %next = torch.call @aten.mul.Tensor(%row, 3) reads(%row) : (!vllm_ir.buffer<6xf32, offset = 12>) -> tensor<6xf32>
// CHECK-NEXT: %new = vllm_ir.view @aten.select.int(%x, 0, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %new_1 = torch.call @aten.copy_.default(%new, %next, false) reads(%new) writes(%new) returns [0] : (!vllm_ir.buffer<6xf32, offset = 12>, tensor<6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: vllm_ir.return %next : tensor<6xf32>
// CHECK-NEXT: }
vllm_ir.func functional @replaced(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) -> tensor<6xf32> {
  %old = vllm_ir.read %x : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
  %first = torch.call @aten.select_scatter.default(%old, %y, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  %row = torch.call @aten.select.int(%first, 0, 2) : (tensor<4x6xf32>) -> tensor<6xf32>
  %next = torch.call @aten.mul.Tensor(%row, 3) : (tensor<6xf32>) -> tensor<6xf32>
  %new = torch.call @aten.select_scatter.default(%old, %next, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  vllm_ir.write %new, %x : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
  vllm_ir.return %next : tensor<6xf32>
}

// What an operator does that looks at sizes alone does not depend on the contents.
// CHECK-LABEL: vllm_ir.func @sizes(%s0: i64 {vllm_ir.symbol = "s0"}, %x: !vllm_ir.buffer<?x6xf32, sizes = ["s0", 6]> {vllm_ir.mutated}, %y: tensor<6xf32>) -> i64 {
// CHECK-NEXT: %new = vllm_ir.view @aten.select.int(%x, 0, 1) : (!vllm_ir.buffer<?x6xf32, sizes = ["s0", 6]>) -> !vllm_ir.buffer<6xf32, offset = 6>
// CHECK-NEXT: %new_1 = torch.call @aten.copy_.default(%new, %y, false) reads(%new) writes(%new) returns [0] : (!vllm_ir.buffer<6xf32, offset = 6>, tensor<6xf32>) -> !vllm_ir.buffer<6xf32, offset = 6>
// CHECK-NEXT: %size = torch.call @aten.sym_size.int(%x, 0) : (!vllm_ir.buffer<?x6xf32, sizes = ["s0", 6]>) -> i64
// CHECK-NEXT: vllm_ir.return %size : i64
// CHECK-NEXT: }
vllm_ir.func functional @sizes(%s0: i64 {vllm_ir.symbol = "s0"}, %x: !vllm_ir.buffer<?x6xf32, sizes = ["s0", 6]> {vllm_ir.mutated}, %y: tensor<6xf32>) -> i64 {
  %old = vllm_ir.read %x : !vllm_ir.buffer<?x6xf32, sizes = ["s0", 6]> -> tensor<?x6xf32, #vllm_ir.layout<sizes = ["s0", 6]>>
  %new = torch.call @aten.select_scatter.default(%old, %y, 0, 1) : (tensor<?x6xf32, #vllm_ir.layout<sizes = ["s0", 6]>>, tensor<6xf32>) -> tensor<?x6xf32, #vllm_ir.layout<sizes = ["s0", 6]>>
  %size = torch.call @aten.sym_size.int(%old, 0) : (tensor<?x6xf32, #vllm_ir.layout<sizes = ["s0", 6]>>) -> i64
  vllm_ir.write %new, %x : tensor<?x6xf32, #vllm_ir.layout<sizes = ["s0", 6]>>, !vllm_ir.buffer<?x6xf32, sizes = ["s0", 6]>
  vllm_ir.return %size : i64
}
