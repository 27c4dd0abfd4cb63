// RUN: vllm-ir-opt %s | vllm-ir-opt | filecheck %s
// RUN: vllm-ir-opt %s --print-op-generic | vllm-ir-opt | filecheck %s
// RUN: vllm-ir-opt %s --print-op-generic | filecheck %s --check-prefix GENERIC

// CHECK-LABEL: vllm_ir.func @main
vllm_ir.func @main(%x: !vllm_ir.buffer<4x8xf32> {vllm_ir.mutated}, %n: i64) -> () {
  // CHECK-NEXT: %t = vllm_ir.read %x : !vllm_ir.buffer<4x8xf32> -> tensor<4x8xf32>
  // GENERIC: %t = "vllm_ir.read"(%x) : (!vllm_ir.buffer<4x8xf32>) -> tensor<4x8xf32>
  %t = vllm_ir.read %x : !vllm_ir.buffer<4x8xf32> -> tensor<4x8xf32>
  // CHECK-NEXT: %a = vllm_ir.alloc %t : tensor<4x8xf32> -> !vllm_ir.buffer<4x8xf32, strides = [1, 4]>
  // GENERIC: %a = "vllm_ir.alloc"(%t) : (tensor<4x8xf32>) -> !vllm_ir.buffer<4x8xf32, strides = [1, 4]>
  %a = vllm_ir.alloc %t : tensor<4x8xf32> -> !vllm_ir.buffer<4x8xf32, strides = [1, 4]>
  // CHECK-NEXT: %v = vllm_ir.view @aten.select.int(%a, 0, %n) attributes {note = "kept"} : (!vllm_ir.buffer<4x8xf32, strides = [1, 4]>, i64) -> !vllm_ir.buffer<8xf32, strides = [4], offset = "n">
  // GENERIC: %v = "vllm_ir.view"(%a, %n) <{callee = @aten.select.int, args = [#torch.operand<0>, 0 : i64, #torch.operand<1>]}> {note = "kept"} : (!vllm_ir.buffer<4x8xf32, strides = [1, 4]>, i64) -> !vllm_ir.buffer<8xf32, strides = [4], offset = "n">
  %v = vllm_ir.view @aten.select.int(%a, 0, %n) attributes {note = "kept"} : (!vllm_ir.buffer<4x8xf32, strides = [1, 4]>, i64) -> !vllm_ir.buffer<8xf32, strides = [4], offset = "n">
  // CHECK-NEXT: %p, %q = vllm_ir.view @aten.split.Tensor(%x, 2, dim = 0) : (!vllm_ir.buffer<4x8xf32>) -> (!vllm_ir.buffer<2x8xf32>, !vllm_ir.buffer<2x8xf32, offset = 16>)
  %p, %q = vllm_ir.view @aten.split.Tensor(%x, 2, dim = 0) : (!vllm_ir.buffer<4x8xf32>) -> (!vllm_ir.buffer<2x8xf32>, !vllm_ir.buffer<2x8xf32, offset = 16>)
  // CHECK-NEXT: vllm_ir.write %t, %x : tensor<4x8xf32>, !vllm_ir.buffer<4x8xf32>
  // GENERIC: "vllm_ir.write"(%t, %x) : (tensor<4x8xf32>, !vllm_ir.buffer<4x8xf32>) -> ()
  vllm_ir.write %t, %x : tensor<4x8xf32>, !vllm_ir.buffer<4x8xf32>
  vllm_ir.return none
}

// Effects are on the buffers: a read may not move over a write, an unused one goes.
// RUN: vllm-ir-opt %s -p cse,dce | filecheck %s --check-prefix OPT
// OPT-LABEL: @order
vllm_ir.func @order(%x: !vllm_ir.buffer<2xf32> {vllm_ir.mutated}, %v: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  // OPT-NEXT: %old = vllm_ir.read %x
  // OPT-NEXT: vllm_ir.write %v, %x
  // OPT-NEXT: %new = vllm_ir.read %x
  // OPT-NEXT: torch.call @ns.print(%new) external
  // OPT-NEXT: torch.call @ns.fill_(%x) writes(%x)
  // OPT-NEXT: vllm_ir.return [%old, %new]
  %old = vllm_ir.read %x : !vllm_ir.buffer<2xf32> -> tensor<2xf32>
  vllm_ir.write %v, %x : tensor<2xf32>, !vllm_ir.buffer<2xf32>
  %new = vllm_ir.read %x : !vllm_ir.buffer<2xf32> -> tensor<2xf32>
  %unused = vllm_ir.read %x : !vllm_ir.buffer<2xf32> -> tensor<2xf32>
  torch.call @ns.print(%new) external : (tensor<2xf32>) -> ()
  torch.call @ns.fill_(%x) writes(%x) : (!vllm_ir.buffer<2xf32>) -> ()
  %dead = torch.call @ns.look(%x) reads(%x) : (!vllm_ir.buffer<2xf32>) -> i64
  vllm_ir.return [%old, %new] : tensor<2xf32>, tensor<2xf32>
}

// Two allocations are two storages, and two draws two values.
// OPT-LABEL: @distinct
vllm_ir.func @distinct(%v: tensor<2xf32>) -> (!vllm_ir.buffer<2xf32>, !vllm_ir.buffer<2xf32>, tensor<2xf32>, tensor<2xf32>) {
  // OPT-NEXT: %a = vllm_ir.alloc %v
  // OPT-NEXT: %b = vllm_ir.alloc %v
  // OPT-NEXT: %r = torch.call @ns.draw() random
  // OPT-NEXT: %s = torch.call @ns.draw() random
  // OPT-NEXT: torch.call @ns.draw() random
  %a = vllm_ir.alloc %v : tensor<2xf32> -> !vllm_ir.buffer<2xf32>
  %b = vllm_ir.alloc %v : tensor<2xf32> -> !vllm_ir.buffer<2xf32>
  %r = torch.call @ns.draw() random : () -> tensor<2xf32>
  %s = torch.call @ns.draw() random : () -> tensor<2xf32>
  %t = torch.call @ns.draw() random : () -> tensor<2xf32>
  vllm_ir.return [%a, %b, %r, %s] : !vllm_ir.buffer<2xf32>, !vllm_ir.buffer<2xf32>, tensor<2xf32>, tensor<2xf32>
}

// Pure calls with the same arguments are one value.
// OPT-LABEL: @pure
vllm_ir.func @pure(%v: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  // OPT-NEXT: %a = torch.call @aten.neg.default(%v)
  // OPT-NEXT: vllm_ir.return [%a, %a as 1]
  %a = torch.call @aten.neg.default(%v) : (tensor<2xf32>) -> tensor<2xf32>
  %b = torch.call @aten.neg.default(%v) : (tensor<2xf32>) -> tensor<2xf32>
  vllm_ir.return [%a, %b] : tensor<2xf32>, tensor<2xf32>
}
