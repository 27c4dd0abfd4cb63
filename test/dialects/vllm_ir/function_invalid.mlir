// RUN: vllm-ir-opt %s --verify-diagnostics --parsing-diagnostics --split-input-file | filecheck %s

// CHECK: Operation does not verify: @main: argument 0 has type i32 in the body, i64 in the function's type
"vllm_ir.func"() <{sym_name = "main", function_type = (i64) -> ()}> ({
^bb0(%x: i32):
  vllm_ir.return none
}) : () -> ()

// -----

// CHECK: Operation does not verify: @main: arguments: the body has 0, the function's type 1
"vllm_ir.func"() <{sym_name = "main", function_type = (i64) -> ()}> ({
  vllm_ir.return none
}) : () -> ()

// -----

// CHECK: Operation does not verify: @main: result 0 has type i32 in the body, i64 in the function's type
vllm_ir.func @main(%x: i32) -> (i64) {
  vllm_ir.return %x : i32
}

// -----

// CHECK: Operation does not verify: @main: arg_attrs has 2 entries for 1 values
"vllm_ir.func"() <{sym_name = "main", function_type = (i64) -> (), arg_attrs = [{}, {}]}> ({
^bb0(%x: i64):
  vllm_ir.return none
}) : () -> ()

// -----

// CHECK: Operation vllm_ir.read terminates block in single-block region but is not a terminator
vllm_ir.func @main(%x: !vllm_ir.buffer<4xf32>) {
  %t = vllm_ir.read %x : !vllm_ir.buffer<4xf32> -> tensor<4xf32>
}

// -----

// CHECK: Operation does not verify: @main ends in test.termop, not vllm_ir.return
vllm_ir.func @main() {
  "test.termop"() : () -> ()
}

// -----

// CHECK: Operation does not verify: %x is an operand but not among the arguments
"vllm_ir.func"() <{sym_name = "main", function_type = (i64) -> (i64)}> ({
^bb0(%x: i64):
  "vllm_ir.return"(%x) <{structure = #torch.none}> : (i64) -> ()
}) : () -> ()

// -----

// CHECK: Operation does not verify: %x has the unknown attribute vllm_ir.mutate; known are vllm_ir.mutated, vllm_ir.donated, vllm_ir.storage, vllm_ir.resource, vllm_ir.symbol, vllm_ir.window
vllm_ir.func @main(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutate}) {
  vllm_ir.return none
}

// -----

// CHECK: Operation does not verify: vllm_ir.resource of %x is 3 : i64, it takes a string
vllm_ir.func @main(%x: tensor<4xf32> {vllm_ir.resource = 3}) {
  vllm_ir.return none
}

// -----

// CHECK: Operation does not verify: %x is marked vllm_ir.mutated but has type tensor<4xf32>, not a buffer
vllm_ir.func @main(%x: tensor<4xf32> {vllm_ir.mutated}) {
  vllm_ir.return none
}

// -----

// CHECK: Operation does not verify: %x is marked vllm_ir.symbol but has type tensor<4xf32>, not an integer
vllm_ir.func @main(%x: tensor<4xf32> {vllm_ir.symbol = "s0"}) {
  vllm_ir.return none
}

// -----

// CHECK: Operation does not verify: vllm_ir.window of %x is on meta, not on cpu
vllm_ir.func @main(%x: !vllm_ir.buffer<4xf32> {vllm_ir.window = !vllm_ir.buffer<2xf32, device = "meta">}) {
  vllm_ir.return none
}

// -----

// CHECK: Operation does not verify: %y on meta shares storage with %x on cpu
vllm_ir.func @main(%x: !vllm_ir.buffer<4xf32> {vllm_ir.storage = 0}, %y: !vllm_ir.buffer<4xf32, device = "meta"> {vllm_ir.storage = 0}) {
  vllm_ir.return none
}

// -----

// CHECK: Operation does not verify: vllm_ir.write writes argument 0 (%x), which is not marked vllm_ir.mutated
vllm_ir.func @main(%x: !vllm_ir.buffer<4xf32>, %v: tensor<4xf32>) {
  vllm_ir.write %v, %x : tensor<4xf32>, !vllm_ir.buffer<4xf32>
  vllm_ir.return none
}

// -----

// CHECK: Operation does not verify: torch.call @aten.zero_.default writes argument 0 (%x), which is not marked vllm_ir.mutated
vllm_ir.func @main(%x: !vllm_ir.buffer<4xf32>) {
  %v = vllm_ir.view @aten.alias.default(%x) : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<4xf32>
  torch.call @aten.zero_.default(%v) writes(%v) : (!vllm_ir.buffer<4xf32>) -> ()
  vllm_ir.return none
}

// -----

// CHECK: Operation does not verify: result 0 (%x) does not state vllm_ir.aliases, but its storage is that of argument 0 (%x)
vllm_ir.func @main(%x: !vllm_ir.buffer<4xf32>) -> (!vllm_ir.buffer<4xf32>) {
  vllm_ir.return %x : !vllm_ir.buffer<4xf32>
}

// -----

// CHECK: Operation does not verify: result 0 (%y) states vllm_ir.aliases = 0, but its storage is that of argument 1 (%y)
vllm_ir.func @main(%x: !vllm_ir.buffer<4xf32>, %y: !vllm_ir.buffer<4xf32>) -> (!vllm_ir.buffer<4xf32> {vllm_ir.aliases = 0 : i64}) {
  vllm_ir.return %y : !vllm_ir.buffer<4xf32>
}

// -----

// CHECK: Operation does not verify: result 0 (%a) states vllm_ir.aliases = 0, but its storage is that of no argument
vllm_ir.func @main(%x: !vllm_ir.buffer<4xf32>, %v: tensor<4xf32>) -> (!vllm_ir.buffer<4xf32> {vllm_ir.aliases = 0 : i64}) {
  %a = vllm_ir.alloc %v : tensor<4xf32> -> !vllm_ir.buffer<4xf32>
  vllm_ir.return %a : !vllm_ir.buffer<4xf32>
}

// -----

// CHECK: Operation does not verify: result 0 (%v) states vllm_ir.aliases = 0, but its storage is that of no argument
vllm_ir.func @main(%x: !vllm_ir.buffer<4xf32>, %v: tensor<4xf32>) -> (tensor<4xf32> {vllm_ir.aliases = 0 : i64}) {
  vllm_ir.return %v : tensor<4xf32>
}

// -----

// CHECK: Operation does not verify: result 0 (%x) has the unknown attribute vllm_ir.alias; known are vllm_ir.aliases
vllm_ir.func @main(%x: tensor<4xf32>) -> (tensor<4xf32> {vllm_ir.alias = 0 : i64}) {
  vllm_ir.return %x : tensor<4xf32>
}

// -----

// CHECK: Operation does not verify: result 0 (%x) is memory of argument 0, which is donated
vllm_ir.func @main(%x: !vllm_ir.buffer<4xf32> {vllm_ir.donated}) -> (!vllm_ir.buffer<4xf32> {vllm_ir.aliases = 0 : i64}) {
  vllm_ir.return %x : !vllm_ir.buffer<4xf32>
}

// Rules of the tensor level.

// -----

// CHECK: Operation does not verify: torch.call @aten.zero_.default writes %x in a functional function
vllm_ir.func functional @main(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}) {
  torch.call @aten.zero_.default(%x) writes(%x) : (!vllm_ir.buffer<4xf32>) -> ()
  vllm_ir.return none
}

// -----

// CHECK: Operation does not verify: torch.call @aten.neg.default takes the buffer %x in a functional function
vllm_ir.func functional @main(%x: !vllm_ir.buffer<4xf32>) {
  %y = torch.call @aten.neg.default(%x) reads(%x) : (!vllm_ir.buffer<4xf32>) -> tensor<4xf32>
  vllm_ir.return none
}

// -----

// CHECK: Operation does not verify: vllm_ir.rms_norm takes the buffer %x in a functional function
vllm_ir.func functional @main(%x: !vllm_ir.buffer<4xf32>) {
  %y = vllm_ir.rms_norm %x : !vllm_ir.buffer<4xf32> {epsilon = 1.0e-05 : f64} -> tensor<4xf32>
  vllm_ir.return none
}

// -----

// CHECK: Operation does not verify: %x is written twice in a functional function
vllm_ir.func functional @main(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}, %v: tensor<4xf32>) {
  %y = vllm_ir.view @aten.alias.default(%x) : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<4xf32>
  vllm_ir.write %v, %x : tensor<4xf32>, !vllm_ir.buffer<4xf32>
  vllm_ir.write %v, %y : tensor<4xf32>, !vllm_ir.buffer<4xf32>
  vllm_ir.return none
}

// -----

// CHECK: Operation does not verify: %a is written in a functional function but is no argument
vllm_ir.func functional @main(%v: tensor<4xf32>) {
  %a = vllm_ir.alloc %v : tensor<4xf32> -> !vllm_ir.buffer<4xf32>
  vllm_ir.write %v, %a : tensor<4xf32>, !vllm_ir.buffer<4xf32>
  vllm_ir.return none
}

// -----

// CHECK: Operation does not verify: %y is read behind the write to %x
vllm_ir.func functional @main(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}, %v: tensor<4xf32>) {
  %y = vllm_ir.view @aten.alias.default(%x) : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<4xf32>
  vllm_ir.write %v, %x : tensor<4xf32>, !vllm_ir.buffer<4xf32>
  %t = vllm_ir.read %y : !vllm_ir.buffer<4xf32> -> tensor<4xf32>
  vllm_ir.return none
}

// -----

// CHECK: Operation does not verify: vllm_ir.read computes %t behind the final write to %x
vllm_ir.func functional @main(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}, %y: !vllm_ir.buffer<4xf32>, %v: tensor<4xf32>) {
  vllm_ir.write %v, %x : tensor<4xf32>, !vllm_ir.buffer<4xf32>
  %t = vllm_ir.read %y : !vllm_ir.buffer<4xf32> -> tensor<4xf32>
  vllm_ir.return none
}

// -----

// CHECK: Operation does not verify: torch.call @ns.print computes behind the final write to %x
vllm_ir.func functional @main(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}, %v: tensor<4xf32>) {
  vllm_ir.write %v, %x : tensor<4xf32>, !vllm_ir.buffer<4xf32>
  torch.call @ns.print(%v) external : (tensor<4xf32>) -> ()
  vllm_ir.return none
}

// -----

// CHECK: Operation does not verify: %x is donated to vllm_ir.rms_norm and used later by torch.call @aten.neg.default
vllm_ir.func functional @main(%x: tensor<4xf32>) {
  %y = vllm_ir.rms_norm %x : tensor<4xf32> {epsilon = 1.0e-05 : f64, donated = array<i64: 0>} -> tensor<4xf32>
  %z = torch.call @aten.neg.default(%x) : (tensor<4xf32>) -> tensor<4xf32>
  vllm_ir.return none
}

// -----

// CHECK: Operation does not verify: %x is donated to vllm_ir.rms_norm and returned
vllm_ir.func functional @main(%x: tensor<4xf32>) -> (tensor<4xf32>) {
  %y = vllm_ir.rms_norm %x : tensor<4xf32> {epsilon = 1.0e-05 : f64, donated = array<i64: 0>} -> tensor<4xf32>
  vllm_ir.return %x : tensor<4xf32>
}

// -----

// CHECK: Operation does not verify: %x is donated to vllm_ir.fused_add_rms_norm and another operand of it
vllm_ir.func functional @main(%x: tensor<4xf32>) {
  %y, %z = vllm_ir.fused_add_rms_norm %x, %x : tensor<4xf32>, tensor<4xf32> {epsilon = 1.0e-05 : f64, donated = array<i64: 0>} -> tensor<4xf32>, tensor<4xf32>
  vllm_ir.return none
}

// -----

// A use before the donation is fine, and so is everything at buffer level, where a pass decides.
// CHECK: vllm_ir.func functional @before
vllm_ir.func functional @before(%x: tensor<4xf32>) -> (tensor<4xf32>) {
  %z = torch.call @aten.neg.default(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %y = vllm_ir.rms_norm %x : tensor<4xf32> {epsilon = 1.0e-05 : f64, donated = array<i64: 0>} -> tensor<4xf32>
  vllm_ir.return %z : tensor<4xf32>
}
// CHECK: vllm_ir.func @buffers
vllm_ir.func @buffers(%x: tensor<4xf32>) -> (tensor<4xf32>) {
  %y = vllm_ir.rms_norm %x : tensor<4xf32> {epsilon = 1.0e-05 : f64, donated = array<i64: 0>} -> tensor<4xf32>
  vllm_ir.return %x : tensor<4xf32>
}

// -----

// CHECK: function_invalid.mlir:272:22
// CHECK: Expected integer literal
vllm_ir.return %x as y

// -----

// CHECK: values used but not defined: [%x]
vllm_ir.func @main() {
  vllm_ir.return %x : i64
}

// -----

// CHECK: torch.call @aten.neg.default uses %a before it is defined
vllm_ir.func @main() {
  %b = torch.call @aten.neg.default(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %a = torch.call @aten.neg.default(%b) : (tensor<4xf32>) -> tensor<4xf32>
  vllm_ir.return none
}

// -----

// CHECK: test.op has a region; branches are functions of their own
vllm_ir.func @main() {
  "test.op"() ({
  }) : () -> ()
  vllm_ir.return none
}

// -----

// CHECK: test.op gives the buffer %b, but does not say in which storage
vllm_ir.func @main() {
  %b = "test.op"() : () -> !vllm_ir.buffer<4xf32>
  vllm_ir.return none
}

// -----

// CHECK: %x of type tensor<9223372036854775808xf32>: 9223372036854775808 does not fit in 64 bits
vllm_ir.func @main(%x: tensor<9223372036854775808xf32>) {
  vllm_ir.return none
}
