// RUN: vllm-ir-opt %s --load %S/operators.py -p functionalize | filecheck %s

// An operator that writes becomes its functional form. The argument is written once, at the end, and returned as the
// same memory.
// CHECK-LABEL: vllm_ir.func functional @in_place(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<4x6xf32>) -> (!vllm_ir.buffer<4x6xf32> {vllm_ir.aliases = 0 : i64}) {
// CHECK-NEXT: %x_1 = vllm_ir.read %x : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
// CHECK-NEXT: %sum = torch.call @aten.add.Tensor(%x_1, %y, alpha = 1) : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: %scaled = torch.call @aten.mul.Tensor(%sum, 2) : (tensor<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: vllm_ir.write %scaled, %x : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
// CHECK-NEXT: vllm_ir.return %x : !vllm_ir.buffer<4x6xf32>
// CHECK-NEXT: }
vllm_ir.func @in_place(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<4x6xf32>) -> (!vllm_ir.buffer<4x6xf32> {vllm_ir.aliases = 0 : i64}) {
  %sum = torch.call @aten.add_.Tensor(%x, %y, alpha = 1) reads(%x) writes(%x) returns [0] : (!vllm_ir.buffer<4x6xf32>, tensor<4x6xf32>) -> !vllm_ir.buffer<4x6xf32>
  %scaled = torch.call @aten.mul_.Tensor(%sum, 2) reads(%sum) writes(%sum) returns [0] : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<4x6xf32>
  vllm_ir.return %scaled : !vllm_ir.buffer<4x6xf32>
}

// The source of a copy is cast and expanded; what was there before plays no part.
// CHECK-LABEL: vllm_ir.func functional @copy(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %row: tensor<6xf64>) {
// CHECK-NEXT: %copied = torch.call @prims.convert_element_type.default(%row, f32) : (tensor<6xf64>) -> tensor<6xf32>
// CHECK-NEXT: %copied_1 = torch.call @aten.expand.default(%copied, [4, 6], implicit = false) : (tensor<6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: vllm_ir.write %copied_1, %x : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
// CHECK-NEXT: vllm_ir.return ()
// CHECK-NEXT: }
vllm_ir.func @copy(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %row: tensor<6xf64>) {
  %copied = torch.call @aten.copy_.default(%x, %row, false) reads(%x) writes(%x) returns [0] : (!vllm_ir.buffer<4x6xf32>, tensor<6xf64>) -> !vllm_ir.buffer<4x6xf32>
  vllm_ir.return ()
}

// A write through views goes back through the inverse of each.
// CHECK-LABEL: vllm_ir.func functional @chain(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6x2xf32>) -> tensor<4x6xf32> {
// CHECK-NEXT: %x_1 = vllm_ir.read %x : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
// CHECK-NEXT: %sum = torch.call @aten.slice.Tensor(%x_1, 0, 1, 3, 1) : (tensor<4x6xf32>) -> tensor<2x6xf32>
// CHECK-NEXT: %sum_1 = torch.call @aten.t.default(%sum) : (tensor<2x6xf32>) -> tensor<6x2xf32, #vllm_ir.layout<strides = [1, 6]>>
// CHECK-NEXT: %sum_2 = torch.call @aten.add.Tensor(%sum_1, %y, alpha = 1) : (tensor<6x2xf32, #vllm_ir.layout<strides = [1, 6]>>, tensor<6x2xf32>) -> tensor<6x2xf32, #vllm_ir.layout<strides = [1, 6]>>
// CHECK-NEXT: %sum_3 = torch.call @aten.t.default(%sum_2) : (tensor<6x2xf32, #vllm_ir.layout<strides = [1, 6]>>) -> tensor<2x6xf32>
// CHECK-NEXT: %sum_4 = torch.call @aten.slice_scatter.default(%x_1, %sum_3, 0, 1, 3, 1) : (tensor<4x6xf32>, tensor<2x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: %all = torch.call @aten.neg.default(%sum_4) : (tensor<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: vllm_ir.write %sum_4, %x : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
// CHECK-NEXT: vllm_ir.return %all : tensor<4x6xf32>
// CHECK-NEXT: }
vllm_ir.func @chain(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6x2xf32>) -> tensor<4x6xf32> {
  %rows = vllm_ir.view @aten.slice.Tensor(%x, 0, 1, 3, 1) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<2x6xf32, offset = 6>
  %columns = vllm_ir.view @aten.t.default(%rows) : (!vllm_ir.buffer<2x6xf32, offset = 6>) -> !vllm_ir.buffer<6x2xf32, strides = [1, 6], offset = 6>
  %sum = torch.call @aten.add_.Tensor(%columns, %y, alpha = 1) reads(%columns) writes(%columns) returns [0] : (!vllm_ir.buffer<6x2xf32, strides = [1, 6], offset = 6>, tensor<6x2xf32>) -> !vllm_ir.buffer<6x2xf32, strides = [1, 6], offset = 6>
  %all = torch.call @aten.neg.default(%x) reads(%x) : (!vllm_ir.buffer<4x6xf32>) -> tensor<4x6xf32>
  vllm_ir.return %all : tensor<4x6xf32>
}

// A window that overlaps sees the write if it is read behind it, and does not if it is read in front of it.
// CHECK-LABEL: vllm_ir.func functional @siblings(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}) -> (tensor<4xf32>, tensor<4xf32>) {
// CHECK-NEXT: %x_1 = vllm_ir.read %x : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
// CHECK-NEXT: %before = torch.call @aten.select.int(%x_1, 1, 3) : (tensor<4x6xf32>) -> tensor<4xf32, #vllm_ir.layout<strides = [6]>>
// CHECK-NEXT: %before_1 = torch.call @aten.neg.default(%before) : (tensor<4xf32, #vllm_ir.layout<strides = [6]>>) -> tensor<4xf32>
// CHECK-NEXT: %zero = torch.call @aten.select.int(%x_1, 0, 2) : (tensor<4x6xf32>) -> tensor<6xf32>
// CHECK-NEXT: %zero_1 = torch.call @aten.zero.default(%zero) : (tensor<6xf32>) -> tensor<6xf32>
// CHECK-NEXT: %zero_2 = torch.call @aten.select_scatter.default(%x_1, %zero_1, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: %after = torch.call @aten.select.int(%zero_2, 1, 3) : (tensor<4x6xf32>) -> tensor<4xf32, #vllm_ir.layout<strides = [6]>>
// CHECK-NEXT: %after_1 = torch.call @aten.neg.default(%after) : (tensor<4xf32, #vllm_ir.layout<strides = [6]>>) -> tensor<4xf32>
// CHECK-NEXT: vllm_ir.write %zero_2, %x : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
// CHECK-NEXT: vllm_ir.return (%before_1, %after_1) : tensor<4xf32>, tensor<4xf32>
// CHECK-NEXT: }
vllm_ir.func @siblings(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}) -> (tensor<4xf32>, tensor<4xf32>) {
  %row = vllm_ir.view @aten.select.int(%x, 0, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
  %column = vllm_ir.view @aten.select.int(%x, 1, 3) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<4xf32, strides = [6], offset = 3>
  %before = torch.call @aten.neg.default(%column) reads(%column) : (!vllm_ir.buffer<4xf32, strides = [6], offset = 3>) -> tensor<4xf32>
  %zero = torch.call @aten.zero_.default(%row) reads(%row) writes(%row) returns [0] : (!vllm_ir.buffer<6xf32, offset = 12>) -> !vllm_ir.buffer<6xf32, offset = 12>
  %after = torch.call @aten.neg.default(%column) reads(%column) : (!vllm_ir.buffer<4xf32, strides = [6], offset = 3>) -> tensor<4xf32>
  vllm_ir.return (%before, %after) : tensor<4xf32>, tensor<4xf32>
}

// `out=` is the functional form and a write, cast to the dtype of the destination.
// CHECK-LABEL: vllm_ir.func functional @out(%x: tensor<4xf64>, %y: tensor<4xf64>, %into: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}) {
// CHECK-NEXT: %sum = torch.call @aten.add.Tensor(%x, %y, alpha = 1) : (tensor<4xf64>, tensor<4xf64>) -> tensor<4xf64>
// CHECK-NEXT: %sum_1 = torch.call @prims.convert_element_type.default(%sum, f32) : (tensor<4xf64>) -> tensor<4xf32>
// CHECK-NEXT: vllm_ir.write %sum_1, %into : tensor<4xf32>, !vllm_ir.buffer<4xf32>
// CHECK-NEXT: vllm_ir.return ()
// CHECK-NEXT: }
vllm_ir.func @out(%x: tensor<4xf64>, %y: tensor<4xf64>, %into: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}) {
  %sum = torch.call @aten.add.out(%x, %y, alpha = 1, out = %into) writes(%into) returns [2] : (tensor<4xf64>, tensor<4xf64>, !vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<4xf32>
  vllm_ir.return ()
}

// An operator without a functional form works as if on a copy: its new value follows its results.
// CHECK-LABEL: vllm_ir.func functional @updates(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) -> tensor<f32> {
// CHECK-NEXT: %x_1 = vllm_ir.read %x : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
// CHECK-NEXT: %sum = torch.call @aten.select.int(%x_1, 0, 2) : (tensor<4x6xf32>) -> tensor<6xf32>
// CHECK-NEXT: %sum_1, %sum_2 = torch.call @functionalize_lit.bump.default(%sum, %y) updates [0] : (tensor<6xf32>, tensor<6xf32>) -> (tensor<f32>, tensor<6xf32>)
// CHECK-NEXT: %sum_3 = torch.call @aten.select_scatter.default(%x_1, %sum_2, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: vllm_ir.write %sum_3, %x : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
// CHECK-NEXT: vllm_ir.return %sum_1 : tensor<f32>
// CHECK-NEXT: }
vllm_ir.func @updates(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) -> tensor<f32> {
  %row = vllm_ir.view @aten.select.int(%x, 0, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
  %sum = torch.call @functionalize_lit.bump.default(%row, %y) reads(%row) writes(%row) : (!vllm_ir.buffer<6xf32, offset = 12>, tensor<6xf32>) -> tensor<f32>
  vllm_ir.return %sum : tensor<f32>
}

// Memory that the function makes is a value, unless two results share it.
// CHECK-LABEL: vllm_ir.func functional @new_memory(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT: %twice = torch.call @aten.mul.Tensor(%x, 2) : (tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: %zero = torch.call @aten.slice.Tensor(%twice, 0, 0, 1, 1) : (tensor<4xf32>) -> tensor<1xf32>
// CHECK-NEXT: %zero_1 = torch.call @aten.zero.default(%zero) : (tensor<1xf32>) -> tensor<1xf32>
// CHECK-NEXT: %zero_2 = torch.call @aten.slice_scatter.default(%twice, %zero_1, 0, 0, 1, 1) : (tensor<4xf32>, tensor<1xf32>) -> tensor<4xf32>
// CHECK-NEXT: vllm_ir.return %zero_2 : tensor<4xf32>
// CHECK-NEXT: }
vllm_ir.func @new_memory(%x: tensor<4xf32>) -> !vllm_ir.buffer<4xf32> {
  %twice = torch.call @aten.mul.Tensor(%x, 2) : (tensor<4xf32>) -> tensor<4xf32>
  %buffer = vllm_ir.alloc %twice : tensor<4xf32> -> !vllm_ir.buffer<4xf32>
  %first = vllm_ir.view @aten.slice.Tensor(%buffer, 0, 0, 1, 1) : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<1xf32>
  %zero = torch.call @aten.zero_.default(%first) reads(%first) writes(%first) returns [0] : (!vllm_ir.buffer<1xf32>) -> !vllm_ir.buffer<1xf32>
  vllm_ir.return %buffer : !vllm_ir.buffer<4xf32>
}

// CHECK-LABEL: vllm_ir.func functional @shared_new_memory(%x: tensor<4xf32>) -> (!vllm_ir.buffer<4xf32>, !vllm_ir.buffer<1xf32>) {
// CHECK-NEXT: %twice = torch.call @aten.mul.Tensor(%x, 2) : (tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: %zero = torch.call @aten.slice.Tensor(%twice, 0, 0, 1, 1) : (tensor<4xf32>) -> tensor<1xf32>
// CHECK-NEXT: %zero_1 = torch.call @aten.zero.default(%zero) : (tensor<1xf32>) -> tensor<1xf32>
// CHECK-NEXT: %zero_2 = torch.call @aten.slice_scatter.default(%twice, %zero_1, 0, 0, 1, 1) : (tensor<4xf32>, tensor<1xf32>) -> tensor<4xf32>
// CHECK-NEXT: %0 = vllm_ir.alloc %zero_2 : tensor<4xf32> -> !vllm_ir.buffer<4xf32>
// CHECK-NEXT: %first = vllm_ir.view @aten.slice.Tensor(%0, 0, 0, 1, 1) : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<1xf32>
// CHECK-NEXT: vllm_ir.return (%0, %first) : !vllm_ir.buffer<4xf32>, !vllm_ir.buffer<1xf32>
// CHECK-NEXT: }
vllm_ir.func @shared_new_memory(%x: tensor<4xf32>) -> (!vllm_ir.buffer<4xf32>, !vllm_ir.buffer<1xf32>) {
  %twice = torch.call @aten.mul.Tensor(%x, 2) : (tensor<4xf32>) -> tensor<4xf32>
  %buffer = vllm_ir.alloc %twice : tensor<4xf32> -> !vllm_ir.buffer<4xf32>
  %first = vllm_ir.view @aten.slice.Tensor(%buffer, 0, 0, 1, 1) : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<1xf32>
  %zero = torch.call @aten.zero_.default(%first) reads(%first) writes(%first) returns [0] : (!vllm_ir.buffer<1xf32>) -> !vllm_ir.buffer<1xf32>
  vllm_ir.return (%buffer, %zero) : !vllm_ir.buffer<4xf32>, !vllm_ir.buffer<1xf32>
}

// A view of an argument that is returned stays a view of it, behind the write.
// CHECK-LABEL: vllm_ir.func functional @alias(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}) -> (!vllm_ir.buffer<6xf32, offset = 12> {vllm_ir.aliases = 0 : i64}) {
// CHECK-NEXT: %row = vllm_ir.view @aten.select.int(%x, 0, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %x_1 = vllm_ir.read %x : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
// CHECK-NEXT: %zero = torch.call @aten.select.int(%x_1, 0, 2) : (tensor<4x6xf32>) -> tensor<6xf32>
// CHECK-NEXT: %zero_1 = torch.call @aten.zero.default(%zero) : (tensor<6xf32>) -> tensor<6xf32>
// CHECK-NEXT: %zero_2 = torch.call @aten.select_scatter.default(%x_1, %zero_1, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: vllm_ir.write %zero_2, %x : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
// CHECK-NEXT: vllm_ir.return %row : !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: }
vllm_ir.func @alias(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}) -> (!vllm_ir.buffer<6xf32, offset = 12> {vllm_ir.aliases = 0 : i64}) {
  %row = vllm_ir.view @aten.select.int(%x, 0, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
  %zero = torch.call @aten.zero_.default(%row) reads(%row) writes(%row) returns [0] : (!vllm_ir.buffer<6xf32, offset = 12>) -> !vllm_ir.buffer<6xf32, offset = 12>
  vllm_ir.return %zero : !vllm_ir.buffer<6xf32, offset = 12>
}

// Arguments that share memory have one value, which is written through the first of them.
// CHECK-LABEL: vllm_ir.func functional @shared(%x: !vllm_ir.buffer<4xf32> {vllm_ir.storage = 0 : i64, vllm_ir.mutated}, %y: !vllm_ir.buffer<4xf32, offset = 2> {vllm_ir.mutated, vllm_ir.storage = 0 : i64}) -> tensor<4xf32> {
// CHECK-NEXT: %0 = vllm_ir.view @aten.as_strided.default(%x, [6], [1], 0) : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<6xf32>
// CHECK-NEXT: %1 = vllm_ir.read %0 : !vllm_ir.buffer<6xf32> -> tensor<6xf32>
// CHECK-NEXT: %zero = torch.call @aten.slice.Tensor(%1, 0, 2, 6, 1) : (tensor<6xf32>) -> tensor<4xf32>
// CHECK-NEXT: %zero_1 = torch.call @aten.zero.default(%zero) : (tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: %zero_2 = torch.call @aten.slice_scatter.default(%1, %zero_1, 0, 2, 6, 1) : (tensor<6xf32>, tensor<4xf32>) -> tensor<6xf32>
// CHECK-NEXT: %seen = torch.call @aten.slice.Tensor(%zero_2, 0, 0, 4, 1) : (tensor<6xf32>) -> tensor<4xf32>
// CHECK-NEXT: %seen_1 = torch.call @aten.neg.default(%seen) : (tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: vllm_ir.write %zero_2, %0 : tensor<6xf32>, !vllm_ir.buffer<6xf32>
// CHECK-NEXT: vllm_ir.return %seen_1 : tensor<4xf32>
// CHECK-NEXT: }
vllm_ir.func @shared(%x: !vllm_ir.buffer<4xf32> {vllm_ir.storage = 0 : i64}, %y: !vllm_ir.buffer<4xf32, offset = 2> {vllm_ir.mutated, vllm_ir.storage = 0 : i64}) -> tensor<4xf32> {
  %zero = torch.call @aten.zero_.default(%y) reads(%y) writes(%y) returns [0] : (!vllm_ir.buffer<4xf32, offset = 2>) -> !vllm_ir.buffer<4xf32, offset = 2>
  %seen = torch.call @aten.neg.default(%x) reads(%x) : (!vllm_ir.buffer<4xf32>) -> tensor<4xf32>
  vllm_ir.return %seen : tensor<4xf32>
}

// What lies between arguments that share memory may be somebody else's: each window that was written gets its value, all
// of them behind all computation. A window that another one covers needs no write of its own.
// CHECK-LABEL: vllm_ir.func functional @between(%even: !vllm_ir.buffer<4xf32, strides = [2]> {vllm_ir.mutated, vllm_ir.storage = 0 : i64}, %odd: !vllm_ir.buffer<4xf32, strides = [2], offset = 1> {vllm_ir.mutated}, %first: !vllm_ir.buffer<2xf32, strides = [2]> {vllm_ir.mutated, vllm_ir.storage = 0 : i64}) {
// CHECK: %zero_2 = torch.call @aten.zero.default
// CHECK: %one_4 = torch.call @aten.index_put.default(%zero_4
// CHECK: %3 = torch.call @aten.index.Tensor(%one_4, [%2]) : (tensor<7xf32>, tensor<4xi64>) -> tensor<4xf32, #vllm_ir.layout<strides = [2]>>
// CHECK-NEXT: vllm_ir.write %two, %odd :
// CHECK-NEXT: vllm_ir.write %3, %even :
// CHECK-NEXT: vllm_ir.return none
vllm_ir.func @between(%even: !vllm_ir.buffer<4xf32, strides = [2]> {vllm_ir.mutated, vllm_ir.storage = 0 : i64}, %odd: !vllm_ir.buffer<4xf32, strides = [2], offset = 1> {vllm_ir.mutated}, %first: !vllm_ir.buffer<2xf32, strides = [2]> {vllm_ir.mutated, vllm_ir.storage = 0 : i64}) {
  %zero = torch.call @aten.zero_.default(%even) reads(%even) writes(%even) returns [0] : (!vllm_ir.buffer<4xf32, strides = [2]>) -> !vllm_ir.buffer<4xf32, strides = [2]>
  %one = torch.call @aten.fill_.Scalar(%first, 1) reads(%first) writes(%first) returns [0] : (!vllm_ir.buffer<2xf32, strides = [2]>) -> !vllm_ir.buffer<2xf32, strides = [2]>
  %two = torch.call @aten.fill_.Scalar(%odd, 2) reads(%odd) writes(%odd) returns [0] : (!vllm_ir.buffer<4xf32, strides = [2], offset = 1>) -> !vllm_ir.buffer<4xf32, strides = [2], offset = 1>
  vllm_ir.return none
}

// The memory of a group begins with its first argument, not with the storage.
// CHECK-LABEL: vllm_ir.func functional @behind
// CHECK: vllm_ir.view @aten.as_strided.default(%x, [6], [1], 100) : (!vllm_ir.buffer<4xf32, offset = 100>) -> !vllm_ir.buffer<6xf32, offset = 100>
// CHECK: torch.call @aten.slice_scatter.default(%{{.*}}, %{{.*}}, 0, 2, 6, 1)
vllm_ir.func @behind(%x: !vllm_ir.buffer<4xf32, offset = 100> {vllm_ir.storage = 0 : i64}, %y: !vllm_ir.buffer<4xf32, offset = 102> {vllm_ir.mutated, vllm_ir.storage = 0 : i64}) {
  %zero = torch.call @aten.zero_.default(%y) reads(%y) writes(%y) returns [0] : (!vllm_ir.buffer<4xf32, offset = 102>) -> !vllm_ir.buffer<4xf32, offset = 102>
  vllm_ir.return none
}

// An operation that takes its operand's memory is given the value; the argument is donated and no longer written.
// CHECK-LABEL: vllm_ir.func functional @donated(%x: tensor<4x8xbf16>, %residual: !vllm_ir.buffer<4x8xbf16> {vllm_ir.donated}, %w: tensor<8xbf16>) -> (tensor<4x8xbf16>, tensor<4x8xbf16>) {
// CHECK-NEXT: %residual_1 = vllm_ir.read %residual : !vllm_ir.buffer<4x8xbf16> -> tensor<4x8xbf16>
// CHECK-NEXT: %zero = torch.call @aten.select.int(%residual_1, 0, 0) : (tensor<4x8xbf16>) -> tensor<8xbf16>
// CHECK-NEXT: %zero_1 = torch.call @aten.zero.default(%zero) : (tensor<8xbf16>) -> tensor<8xbf16>
// CHECK-NEXT: %zero_2 = torch.call @aten.select_scatter.default(%residual_1, %zero_1, 0, 0) : (tensor<4x8xbf16>, tensor<8xbf16>) -> tensor<4x8xbf16>
// CHECK-NEXT: %normed, %sum = vllm_ir.fused_add_rms_norm %x, %zero_2 : tensor<4x8xbf16>, tensor<4x8xbf16> weight %w : tensor<8xbf16> {epsilon = 1.000000e-05 : f64, donated = array<i64: 1>} -> tensor<4x8xbf16>, tensor<4x8xbf16>
// CHECK-NEXT: vllm_ir.return (%normed, %sum) : tensor<4x8xbf16>, tensor<4x8xbf16>
// CHECK-NEXT: }
vllm_ir.func @donated(%x: tensor<4x8xbf16>, %residual: !vllm_ir.buffer<4x8xbf16> {vllm_ir.mutated}, %w: tensor<8xbf16>) -> (tensor<4x8xbf16>, tensor<4x8xbf16>) {
  %row = vllm_ir.view @aten.select.int(%residual, 0, 0) : (!vllm_ir.buffer<4x8xbf16>) -> !vllm_ir.buffer<8xbf16>
  %zero = torch.call @aten.zero_.default(%row) reads(%row) writes(%row) returns [0] : (!vllm_ir.buffer<8xbf16>) -> !vllm_ir.buffer<8xbf16>
  %normed, %sum = vllm_ir.fused_add_rms_norm %x, %residual : tensor<4x8xbf16>, !vllm_ir.buffer<4x8xbf16> weight %w : tensor<8xbf16> {epsilon = 1.0e-05 : f64, donated = array<i64: 1>} -> tensor<4x8xbf16>, tensor<4x8xbf16>
  vllm_ir.return (%normed, %sum) : tensor<4x8xbf16>, tensor<4x8xbf16>
}

// Nothing happens to a function that is functional already, nor to one without buffers beside its mark.
// CHECK-LABEL: vllm_ir.func functional @already(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}) {
// CHECK-NEXT: %value = vllm_ir.read %x : !vllm_ir.buffer<4xf32> -> tensor<4xf32>
// CHECK-NEXT: %sum = torch.call @aten.neg.default(%value) : (tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: vllm_ir.write %sum, %x : tensor<4xf32>, !vllm_ir.buffer<4xf32>
// CHECK-NEXT: vllm_ir.return ()
// CHECK-NEXT: }
vllm_ir.func functional @already(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}) {
  %value = vllm_ir.read %x : !vllm_ir.buffer<4xf32> -> tensor<4xf32>
  %sum = torch.call @aten.neg.default(%value) : (tensor<4xf32>) -> tensor<4xf32>
  vllm_ir.write %sum, %x : tensor<4xf32>, !vllm_ir.buffer<4xf32>
  vllm_ir.return ()
}

// CHECK-LABEL: vllm_ir.func functional @pure(%x: tensor<4xf32>) -> tensor<4xf32> {
// CHECK-NEXT: %sum = torch.call @aten.neg.default(%x) : (tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: vllm_ir.return %sum : tensor<4xf32>
// CHECK-NEXT: }
vllm_ir.func @pure(%x: tensor<4xf32>) -> tensor<4xf32> {
  %sum = torch.call @aten.neg.default(%x) : (tensor<4xf32>) -> tensor<4xf32>
  vllm_ir.return %sum : tensor<4xf32>
}

// An argument that is donated in part is not donated: what is written to the rest of it stays the caller's.
// CHECK-LABEL: vllm_ir.func functional @donated_in_part(%cache: !vllm_ir.buffer<2x8xbf16> {vllm_ir.mutated}, %x: tensor<8xbf16>) -> (tensor<8xbf16>, tensor<8xbf16>) {
// CHECK-NEXT: %cache_1 = vllm_ir.read %cache : !vllm_ir.buffer<2x8xbf16> -> tensor<2x8xbf16>
// CHECK-NEXT: %zero = torch.call @aten.zero.default(%cache_1) : (tensor<2x8xbf16>) -> tensor<2x8xbf16>
// CHECK-NEXT: %normed = torch.call @aten.select.int(%zero, 0, 0) : (tensor<2x8xbf16>) -> tensor<8xbf16>
// CHECK-NEXT: %normed_1, %sum = vllm_ir.fused_add_rms_norm %x, %normed : tensor<8xbf16>, tensor<8xbf16> {epsilon = 1.000000e-05 : f64, donated = array<i64: 1>} -> tensor<8xbf16>, tensor<8xbf16>
// CHECK-NEXT: vllm_ir.write %zero, %cache : tensor<2x8xbf16>, !vllm_ir.buffer<2x8xbf16>
// CHECK-NEXT: vllm_ir.return (%normed_1, %sum) : tensor<8xbf16>, tensor<8xbf16>
// CHECK-NEXT: }
vllm_ir.func @donated_in_part(%cache: !vllm_ir.buffer<2x8xbf16> {vllm_ir.mutated}, %x: tensor<8xbf16>) -> (tensor<8xbf16>, tensor<8xbf16>) {
  %row = vllm_ir.view @aten.select.int(%cache, 0, 0) : (!vllm_ir.buffer<2x8xbf16>) -> !vllm_ir.buffer<8xbf16>
  %zero = torch.call @aten.zero_.default(%cache) reads(%cache) writes(%cache) returns [0] : (!vllm_ir.buffer<2x8xbf16>) -> !vllm_ir.buffer<2x8xbf16>
  %normed, %sum = vllm_ir.fused_add_rms_norm %x, %row : tensor<8xbf16>, !vllm_ir.buffer<8xbf16> {epsilon = 1.0e-05 : f64, donated = array<i64: 1>} -> tensor<8xbf16>, tensor<8xbf16>
  vllm_ir.return (%normed, %sum) : tensor<8xbf16>, tensor<8xbf16>
}
