// RUN: vllm-ir-opt %s -p print-aliases | filecheck %s
// RUN: vllm-ir-opt %s -p print-aliases,print-aliases | filecheck %s

// At buffer level. Versions count the writes to a storage; a read sees the last one before it.
// CHECK-LABEL: vllm_ir.func @buffers(%cache: !vllm_ir.buffer<2x16x4xf32> {vllm_ir.mutated}, %x: tensor<16x4xf32>, %n: i64) -> (tensor<16x4xf32>, !vllm_ir.buffer<2x16x4xf32> {vllm_ir.aliases = 0 : i64}) attributes {vllm_ir.places = ["%cache", "%x"], vllm_ir.storages = ["%cache: argument, mutated, version 2", "%x: argument, version 0", "%before: new, version 0"]} {
// CHECK-NEXT: %layer = vllm_ir.view @aten.select.int(%cache, 0, 1) attributes {vllm_ir.place = "%cache[16x4xf32, offset = 64]"} : (!vllm_ir.buffer<2x16x4xf32>) -> !vllm_ir.buffer<16x4xf32, offset = 64>
// CHECK-NEXT: %before = torch.call @aten.neg.default(%layer) reads(%layer) attributes {vllm_ir.reads = ["%cache[16x4xf32, offset = 64] version 0"], vllm_ir.place = "%before"} : (!vllm_ir.buffer<16x4xf32, offset = 64>) -> tensor<16x4xf32>
// CHECK-NEXT: %sum = torch.call @aten.add_.Tensor(%layer, %x, alpha = 1) reads(%layer) writes(%layer) returns [0] attributes {vllm_ir.reads = ["%cache[16x4xf32, offset = 64] version 0"], vllm_ir.writes = ["%cache[16x4xf32, offset = 64] version 1"], vllm_ir.place = "%cache[16x4xf32, offset = 64]"} : (!vllm_ir.buffer<16x4xf32, offset = 64>, tensor<16x4xf32>) -> !vllm_ir.buffer<16x4xf32, offset = 64>
// CHECK-NEXT: %after = vllm_ir.read %sum {vllm_ir.reads = ["%cache[16x4xf32, offset = 64] version 1"], vllm_ir.place = "%cache[16x4xf32, offset = 64]"} : !vllm_ir.buffer<16x4xf32, offset = 64> -> tensor<16x4xf32>
// CHECK-NEXT: vllm_ir.write %before, %sum {vllm_ir.writes = ["%cache[16x4xf32, offset = 64] version 2"]} : tensor<16x4xf32>, !vllm_ir.buffer<16x4xf32, offset = 64>
// CHECK-NEXT: vllm_ir.return (%after, %cache) attributes {vllm_ir.reads = ["%cache version 2"]} : tensor<16x4xf32>, !vllm_ir.buffer<2x16x4xf32>
// CHECK-NEXT: }
vllm_ir.func @buffers(%cache: !vllm_ir.buffer<2x16x4xf32> {vllm_ir.mutated}, %x: tensor<16x4xf32>, %n: i64) -> (tensor<16x4xf32>, !vllm_ir.buffer<2x16x4xf32> {vllm_ir.aliases = 0 : i64}) {
  %layer = vllm_ir.view @aten.select.int(%cache, 0, 1) : (!vllm_ir.buffer<2x16x4xf32>) -> !vllm_ir.buffer<16x4xf32, offset = 64>
  %before = torch.call @aten.neg.default(%layer) reads(%layer) : (!vllm_ir.buffer<16x4xf32, offset = 64>) -> tensor<16x4xf32>
  %sum = torch.call @aten.add_.Tensor(%layer, %x, alpha = 1) reads(%layer) writes(%layer) returns [0] : (!vllm_ir.buffer<16x4xf32, offset = 64>, tensor<16x4xf32>) -> !vllm_ir.buffer<16x4xf32, offset = 64>
  %after = vllm_ir.read %sum : !vllm_ir.buffer<16x4xf32, offset = 64> -> tensor<16x4xf32>
  vllm_ir.write %before, %sum : tensor<16x4xf32>, !vllm_ir.buffer<16x4xf32, offset = 64>
  vllm_ir.return (%after, %cache) : tensor<16x4xf32>, !vllm_ir.buffer<2x16x4xf32>
}

// Memory that the function makes, a constant, and results of several windows.
// CHECK-LABEL: vllm_ir.func @new(%x: tensor<4xf32>) -> tensor<4xf32> attributes {vllm_ir.places = ["%x"], vllm_ir.storages = ["%x: argument, version 0", "%c: constant, version 0", "%sum: new, version 0", "%buffer: new, version 1"]} {
// CHECK-NEXT: %c = torch.constant "0000803f000000400000404000008040" {vllm_ir.place = "%c"} : tensor<4xf32>
// CHECK-NEXT: %sum = torch.call @aten.add.Tensor(%x, %c, alpha = 1) attributes {vllm_ir.place = "%sum"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: %buffer = vllm_ir.alloc %sum {vllm_ir.place = "%buffer"} : tensor<4xf32> -> !vllm_ir.buffer<4xf32>
// CHECK-NEXT: %head, %tail = vllm_ir.view @aten.split.Tensor(%buffer, 2, 0) attributes {vllm_ir.place = ["%buffer[2xf32]", "%buffer[2xf32, offset = 2]"]} : (!vllm_ir.buffer<4xf32>) -> (!vllm_ir.buffer<2xf32>, !vllm_ir.buffer<2xf32, offset = 2>)
// CHECK-NEXT: %zero = torch.call @aten.zero_.default(%tail) reads(%tail) writes(%tail) returns [0] attributes {vllm_ir.reads = ["%buffer[2xf32, offset = 2] version 0"], vllm_ir.writes = ["%buffer[2xf32, offset = 2] version 1"], vllm_ir.place = "%buffer[2xf32, offset = 2]"} : (!vllm_ir.buffer<2xf32, offset = 2>) -> !vllm_ir.buffer<2xf32, offset = 2>
// CHECK-NEXT: %last = vllm_ir.read %buffer {vllm_ir.reads = ["%buffer version 1"], vllm_ir.place = "%buffer"} : !vllm_ir.buffer<4xf32> -> tensor<4xf32>
// CHECK-NEXT: vllm_ir.return %last : tensor<4xf32>
// CHECK-NEXT: }
vllm_ir.func @new(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = torch.constant "0000803f000000400000404000008040" : tensor<4xf32>
  %sum = torch.call @aten.add.Tensor(%x, %c, alpha = 1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %buffer = vllm_ir.alloc %sum : tensor<4xf32> -> !vllm_ir.buffer<4xf32>
  %head, %tail = vllm_ir.view @aten.split.Tensor(%buffer, 2, 0) : (!vllm_ir.buffer<4xf32>) -> (!vllm_ir.buffer<2xf32>, !vllm_ir.buffer<2xf32, offset = 2>)
  %zero = torch.call @aten.zero_.default(%tail) reads(%tail) writes(%tail) returns [0] : (!vllm_ir.buffer<2xf32, offset = 2>) -> !vllm_ir.buffer<2xf32, offset = 2>
  %last = vllm_ir.read %buffer : !vllm_ir.buffer<4xf32> -> tensor<4xf32>
  vllm_ir.return %last : tensor<4xf32>
}

// Arguments that share memory are one storage; a donated one is marked.
// CHECK-LABEL: vllm_ir.func @shared(%x: !vllm_ir.buffer<2x3xf32> {vllm_ir.storage = 0 : i64, vllm_ir.mutated}, %y: !vllm_ir.buffer<3x2xf32, strides = [1, 3], offset = 6> {vllm_ir.storage = 0 : i64}, %z: !vllm_ir.buffer<4xf32> {vllm_ir.donated}) attributes {vllm_ir.places = ["%x", "%x[3x2xf32, strides = [1, 3], offset = 6]", "%z"], vllm_ir.storages = ["%x: argument, mutated, version 1", "%z: argument, donated, version 0", "%sum: new, version 0"]} {
// CHECK-NEXT: %zero = torch.call @aten.zero_.default(%x) reads(%x) writes(%x) returns [0] attributes {vllm_ir.reads = ["%x version 0"], vllm_ir.writes = ["%x version 1"], vllm_ir.place = "%x"} : (!vllm_ir.buffer<2x3xf32>) -> !vllm_ir.buffer<2x3xf32>
// CHECK-NEXT: %sum = torch.call @aten.sum.default(%y, dtype = none) reads(%y) attributes {vllm_ir.reads = ["%x[3x2xf32, strides = [1, 3], offset = 6] version 1"], vllm_ir.place = "%sum"} : (!vllm_ir.buffer<3x2xf32, strides = [1, 3], offset = 6>) -> tensor<f32>
// CHECK-NEXT: vllm_ir.return ()
// CHECK-NEXT: }
vllm_ir.func @shared(%x: !vllm_ir.buffer<2x3xf32> {vllm_ir.storage = 0 : i64, vllm_ir.mutated}, %y: !vllm_ir.buffer<3x2xf32, strides = [1, 3], offset = 6> {vllm_ir.storage = 0 : i64}, %z: !vllm_ir.buffer<4xf32> {vllm_ir.donated}) {
  %zero = torch.call @aten.zero_.default(%x) reads(%x) writes(%x) returns [0] : (!vllm_ir.buffer<2x3xf32>) -> !vllm_ir.buffer<2x3xf32>
  %sum = torch.call @aten.sum.default(%y, dtype = none) reads(%y) : (!vllm_ir.buffer<3x2xf32, strides = [1, 3], offset = 6>) -> tensor<f32>
  vllm_ir.return ()
}

// At tensor level values have no memory. They are placed where they would be if nothing were copied.
// CHECK-LABEL: vllm_ir.func functional @values(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) -> tensor<6x4xf32> attributes {vllm_ir.places = ["%x", "%y"], vllm_ir.storages = ["%x: argument, mutated, version 1", "%y: argument, version 0", "%new: new, version 0", "%flat: new, version 0", "%copy: new, version 0"]} {
// CHECK-NEXT: %old = vllm_ir.read %x {vllm_ir.reads = ["%x version 0"], vllm_ir.place = "%x"} : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
// CHECK-NEXT: %columns = torch.call @aten.t.default(%old) attributes {vllm_ir.place = "%x[6x4xf32, strides = [1, 6]]"} : (tensor<4x6xf32>) -> tensor<6x4xf32, #vllm_ir.layout<strides = [1, 6]>>
// CHECK-NEXT: %new = torch.call @aten.select_scatter.default(%old, %y, 0, 2) attributes {vllm_ir.place = "%new"} : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: %flat = torch.call @aten.reshape.default(%columns, [24]) attributes {vllm_ir.place = "%flat"} : (tensor<6x4xf32, #vllm_ir.layout<strides = [1, 6]>>) -> tensor<24xf32>
// CHECK-NEXT: %copy = torch.call @aten.clone.default(%columns, memory_format = #torch.memory_format<"contiguous_format">) attributes {vllm_ir.place = "%copy"} : (tensor<6x4xf32, #vllm_ir.layout<strides = [1, 6]>>) -> tensor<6x4xf32>
// CHECK-NEXT: vllm_ir.write %new, %x {vllm_ir.writes = ["%x version 1"]} : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
// CHECK-NEXT: vllm_ir.return %copy : tensor<6x4xf32>
// CHECK-NEXT: }
vllm_ir.func functional @values(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) -> tensor<6x4xf32> {
  %old = vllm_ir.read %x : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
  %columns = torch.call @aten.t.default(%old) : (tensor<4x6xf32>) -> tensor<6x4xf32, #vllm_ir.layout<strides = [1, 6]>>
  %new = torch.call @aten.select_scatter.default(%old, %y, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  %flat = torch.call @aten.reshape.default(%columns, [24]) : (tensor<6x4xf32, #vllm_ir.layout<strides = [1, 6]>>) -> tensor<24xf32>
  %copy = torch.call @aten.clone.default(%columns, memory_format = #torch.memory_format<"contiguous_format">) : (tensor<6x4xf32, #vllm_ir.layout<strides = [1, 6]>>) -> tensor<6x4xf32>
  vllm_ir.write %new, %x : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
  vllm_ir.return %copy : tensor<6x4xf32>
}

// A window that starts at a number known only at run time; what is known is that it is in the layer.
// CHECK-LABEL: vllm_ir.func functional @unknown(%s0: i64 {vllm_ir.symbol = "s0"}, %i: i64, %x: tensor<2x?xf32, #vllm_ir.layout<sizes = [2, "s0"]>>) -> tensor<f32> attributes {vllm_ir.places = ["%x"], vllm_ir.storages = ["%x: argument, version 0", "%sum: new, version 0"]} {
// CHECK-NEXT: %row = torch.call @aten.select.int(%x, 0, 1) attributes {vllm_ir.place = "%x[?xf32, sizes = [s0], offset = s0]"} : (tensor<2x?xf32, #vllm_ir.layout<sizes = [2, "s0"]>>) -> tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>
// CHECK-NEXT: %element = torch.call @aten.select.int(%row, 0, %i) attributes {vllm_ir.place = "%x[? in ?xf32, sizes = [s0], offset = s0 in 2x?xf32, sizes = [2, s0]]"} : (tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>, i64) -> tensor<f32>
// CHECK-NEXT: %sum = torch.call @aten.neg.default(%element) attributes {vllm_ir.place = "%sum"} : (tensor<f32>) -> tensor<f32>
// CHECK-NEXT: vllm_ir.return %sum : tensor<f32>
// CHECK-NEXT: }
vllm_ir.func functional @unknown(%s0: i64 {vllm_ir.symbol = "s0"}, %i: i64, %x: tensor<2x?xf32, #vllm_ir.layout<sizes = [2, "s0"]>>) -> tensor<f32> {
  %row = torch.call @aten.select.int(%x, 0, 1) : (tensor<2x?xf32, #vllm_ir.layout<sizes = [2, "s0"]>>) -> tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>
  %element = torch.call @aten.select.int(%row, 0, %i) : (tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>, i64) -> tensor<f32>
  %sum = torch.call @aten.neg.default(%element) : (tensor<f32>) -> tensor<f32>
  vllm_ir.return %sum : tensor<f32>
}
