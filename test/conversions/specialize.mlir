// RUN: vllm-ir-opt %s --split-input-file -p 'specialize{sizes="s0=6","s1=9"}' | filecheck %s
// RUN: not vllm-ir-opt %s -p 'specialize{sizes="s7=1"}' 2>&1 | filecheck %s --check-prefix UNKNOWN
// RUN: not vllm-ir-opt %s -p 'specialize{sizes="s0:1"}' 2>&1 | filecheck %s --check-prefix FORM
// RUN: not vllm-ir-opt %s -p 'specialize{sizes="s0=1"}' 2>&1 | filecheck %s --check-prefix NEGATIVE
// UNKNOWN: there is no symbol 's7'; symbols are s0, s1
// FORM: option sizes has 's0:1', it takes symbol=number
// NEGATIVE: the size s0 - 2 is -1 with the given numbers

// Sizes in types, sizes that are asked for, and what is computed of them.
// CHECK-LABEL: vllm_ir.func @sizes(%kv: !vllm_ir.buffer<6x9xf32> {vllm_ir.mutated}, %x: tensor<6xf32>, %n: i64 {vllm_ir.symbol = "s0"}) -> (!vllm_ir.buffer<6x4xf32, strides = [9, 1], offset = 1> {vllm_ir.aliases = 0 : i64}, i64) {
// CHECK-NEXT: %column = vllm_ir.view @aten.select.int(%kv, 1, 0) : (!vllm_ir.buffer<6x9xf32>) -> !vllm_ir.buffer<6xf32, strides = [9]>
// CHECK-NEXT: vllm_ir.write %x, %column : tensor<6xf32>, !vllm_ir.buffer<6xf32, strides = [9]>
// CHECK-NEXT: %part = vllm_ir.view @aten.slice.Tensor(%kv, 1, 1, 5, 1) : (!vllm_ir.buffer<6x9xf32>) -> !vllm_ir.buffer<6x4xf32, strides = [9, 1], offset = 1>
// CHECK-NEXT: [[SIZE:%.*]] = arith.constant 6 : i64
// CHECK-NEXT: vllm_ir.return (%part, [[SIZE]]) : !vllm_ir.buffer<6x4xf32, strides = [9, 1], offset = 1>, i64
vllm_ir.func @sizes(%kv: !vllm_ir.buffer<?x?xf32, sizes = ["s0", "s1"]> {vllm_ir.mutated}, %x: tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>, %n: i64 {vllm_ir.symbol = "s0"}) -> (!vllm_ir.buffer<?x?xf32, sizes = ["s0", "s0 - 2"], strides = ["s1", 1], offset = 1> {vllm_ir.aliases = 0 : i64}, i64) {
  %column = vllm_ir.view @aten.select.int(%kv, 1, 0) : (!vllm_ir.buffer<?x?xf32, sizes = ["s0", "s1"]>) -> !vllm_ir.buffer<?xf32, sizes = ["s0"], strides = ["s1"]>
  vllm_ir.write %x, %column : tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>, !vllm_ir.buffer<?xf32, sizes = ["s0"], strides = ["s1"]>
  %size = torch.call @aten.sym_size.int(%x, 0) : (tensor<?xf32, #vllm_ir.layout<sizes = ["s0"]>>) -> i64
  %one = arith.constant 1 : i64
  %end = arith.subi %size, %one : i64
  %part = vllm_ir.view @aten.slice.Tensor(%kv, 1, 1, %end, 1) : (!vllm_ir.buffer<?x?xf32, sizes = ["s0", "s1"]>, i64) -> !vllm_ir.buffer<?x?xf32, sizes = ["s0", "s0 - 2"], strides = ["s1", 1], offset = 1>
  vllm_ir.return (%part, %n) : !vllm_ir.buffer<?x?xf32, sizes = ["s0", "s0 - 2"], strides = ["s1", 1], offset = 1>, i64
}

// -----

// Symbols without a number stay; effects name the operands by their new numbers.
// CHECK-LABEL: vllm_ir.func @some(
// CHECK-NEXT: %size = torch.call @aten.sym_size.int(%x, 1) reads(%x) : (!vllm_ir.buffer<6x?xf32, sizes = [6, "s2"]>) -> i64
// CHECK-NEXT: %out = torch.call @aten.index_fill_.int_Scalar(%x, 0, %i, 6) reads(%x) writes(%x) returns [0] : (!vllm_ir.buffer<6x?xf32, sizes = [6, "s2"]>, tensor<9xi64>) -> !vllm_ir.buffer<6x?xf32, sizes = [6, "s2"]>
// CHECK-NEXT: vllm_ir.return %size : i64
vllm_ir.func @some(%n: i64 {vllm_ir.symbol = "s0"}, %x: !vllm_ir.buffer<?x?xf32, sizes = ["s0", "s2"]> {vllm_ir.mutated}, %i: tensor<?xi64, #vllm_ir.layout<sizes = ["s1"]>>) -> i64 {
  %size = torch.call @aten.sym_size.int(%x, 1) reads(%x) : (!vllm_ir.buffer<?x?xf32, sizes = ["s0", "s2"]>) -> i64
  %out = torch.call @aten.index_fill_.int_Scalar(%x, 0, %i, %n) reads(%x) writes(%x) returns [0] : (!vllm_ir.buffer<?x?xf32, sizes = ["s0", "s2"]>, tensor<?xi64, #vllm_ir.layout<sizes = ["s1"]>>, i64) -> !vllm_ir.buffer<?x?xf32, sizes = ["s0", "s2"]>
  vllm_ir.return %size : i64
}
