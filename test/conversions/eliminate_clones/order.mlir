// RUN: vllm-ir-opt %s --load %S/operators.py -p eliminate-clones | filecheck %s

// What needs an old value happens before it is overwritten, where it can.
// CHECK-LABEL: vllm_ir.func @hoisted(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) -> tensor<4xf32> {
// CHECK-NEXT: %column = vllm_ir.view @aten.select.int(%x, 1, 3) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<4xf32, strides = [6], offset = 3>
// CHECK-NEXT: %twice = torch.call @aten.mul.Tensor(%column, 2) reads(%column) : (!vllm_ir.buffer<4xf32, strides = [6], offset = 3>) -> tensor<4xf32>
// CHECK-NEXT: %new = vllm_ir.view @aten.select.int(%x, 0, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %new_1 = torch.call @aten.copy_.default(%new, %y, false) reads(%new) writes(%new) returns [0] : (!vllm_ir.buffer<6xf32, offset = 12>, tensor<6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: vllm_ir.return %twice : tensor<4xf32>
// CHECK-NEXT: }
vllm_ir.func functional @hoisted(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) -> tensor<4xf32> {
  %old = vllm_ir.read %x : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
  %new = torch.call @aten.select_scatter.default(%old, %y, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  %column = torch.call @aten.select.int(%old, 1, 3) : (tensor<4x6xf32>) -> tensor<4xf32, #vllm_ir.layout<strides = [6]>>
  %twice = torch.call @aten.mul.Tensor(%column, 2) : (tensor<4xf32, #vllm_ir.layout<strides = [6]>>) -> tensor<4xf32>
  vllm_ir.write %new, %x : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
  vllm_ir.return %twice : tensor<4xf32>
}

// Drawing random numbers is not moved.
// CHECK-LABEL: vllm_ir.func @random(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) -> tensor<4x6xf32> {
// CHECK-NEXT: %old = torch.call @aten.clone.default(%x, memory_format = none) reads(%x) attributes {vllm_ir.reason = "%old is overwritten by @aten.select_scatter.default and still needed by @aten.bernoulli.default"} : (!vllm_ir.buffer<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: %new = vllm_ir.view @aten.select.int(%x, 0, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %new_1 = torch.call @aten.copy_.default(%new, %y, false) reads(%new) writes(%new) returns [0] : (!vllm_ir.buffer<6xf32, offset = 12>, tensor<6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %noise = torch.call @aten.bernoulli.default(%old, generator = none) random : (tensor<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: vllm_ir.return %noise : tensor<4x6xf32>
// CHECK-NEXT: }
vllm_ir.func functional @random(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: tensor<6xf32>) -> tensor<4x6xf32> {
  %old = vllm_ir.read %x : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
  %new = torch.call @aten.select_scatter.default(%old, %y, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  %noise = torch.call @aten.bernoulli.default(%old, generator = none) random : (tensor<4x6xf32>) -> tensor<4x6xf32>
  vllm_ir.write %new, %x : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
  vllm_ir.return %noise : tensor<4x6xf32>
}

// Two arguments that swap their contents need one copy, of one of them.
// CHECK-LABEL: vllm_ir.func @swap(%x: !vllm_ir.buffer<6xf32> {vllm_ir.mutated}, %y: !vllm_ir.buffer<6xf32> {vllm_ir.mutated}) {
// CHECK-NEXT: %old_x = torch.call @aten.clone.default(%x, memory_format = none) reads(%x) attributes {vllm_ir.reason = "%old_x is overwritten by vllm_ir.write and still needed by vllm_ir.write"} : (!vllm_ir.buffer<6xf32>) -> tensor<6xf32>
// CHECK-NEXT: %0 = vllm_ir.read %y : !vllm_ir.buffer<6xf32> -> tensor<6xf32>
// CHECK-NEXT: vllm_ir.write %0, %x : tensor<6xf32>, !vllm_ir.buffer<6xf32>
// CHECK-NEXT: vllm_ir.write %old_x, %y : tensor<6xf32>, !vllm_ir.buffer<6xf32>
// CHECK-NEXT: vllm_ir.return ()
// CHECK-NEXT: }
vllm_ir.func functional @swap(%x: !vllm_ir.buffer<6xf32> {vllm_ir.mutated}, %y: !vllm_ir.buffer<6xf32> {vllm_ir.mutated}) {
  %old_x = vllm_ir.read %x : !vllm_ir.buffer<6xf32> -> tensor<6xf32>
  %old_y = vllm_ir.read %y : !vllm_ir.buffer<6xf32> -> tensor<6xf32>
  vllm_ir.write %old_y, %x : tensor<6xf32>, !vllm_ir.buffer<6xf32>
  vllm_ir.write %old_x, %y : tensor<6xf32>, !vllm_ir.buffer<6xf32>
  vllm_ir.return ()
}

// No copy is needed where one of the final writes can go first.
// CHECK-LABEL: vllm_ir.func @shift(%x: !vllm_ir.buffer<6xf32> {vllm_ir.mutated}, %y: !vllm_ir.buffer<6xf32> {vllm_ir.mutated}, %z: tensor<6xf32>) {
// CHECK-NEXT: %0 = vllm_ir.read %x : !vllm_ir.buffer<6xf32> -> tensor<6xf32>
// CHECK-NEXT: vllm_ir.write %0, %y : tensor<6xf32>, !vllm_ir.buffer<6xf32>
// CHECK-NEXT: vllm_ir.write %z, %x : tensor<6xf32>, !vllm_ir.buffer<6xf32>
// CHECK-NEXT: vllm_ir.return ()
// CHECK-NEXT: }
vllm_ir.func functional @shift(%x: !vllm_ir.buffer<6xf32> {vllm_ir.mutated}, %y: !vllm_ir.buffer<6xf32> {vllm_ir.mutated}, %z: tensor<6xf32>) {
  %old = vllm_ir.read %x : !vllm_ir.buffer<6xf32> -> tensor<6xf32>
  vllm_ir.write %z, %x : tensor<6xf32>, !vllm_ir.buffer<6xf32>
  vllm_ir.write %old, %y : tensor<6xf32>, !vllm_ir.buffer<6xf32>
  vllm_ir.return ()
}

// An update in place is a write like the final ones: the old value is copied to the other argument first.
// CHECK-LABEL: vllm_ir.func @saved(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %z: tensor<6xf32>) {
// CHECK-NEXT: %old = torch.call @aten.clone.default(%x, memory_format = none) reads(%x) attributes {vllm_ir.reason = "%old is overwritten by @aten.select_scatter.default and still needed by vllm_ir.write"} : (!vllm_ir.buffer<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: %new = vllm_ir.view @aten.select.int(%x, 0, 2) : (!vllm_ir.buffer<4x6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: %new_1 = torch.call @aten.copy_.default(%new, %z, false) reads(%new) writes(%new) returns [0] : (!vllm_ir.buffer<6xf32, offset = 12>, tensor<6xf32>) -> !vllm_ir.buffer<6xf32, offset = 12>
// CHECK-NEXT: vllm_ir.write %old, %y : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
// CHECK-NEXT: vllm_ir.return ()
// CHECK-NEXT: }
vllm_ir.func functional @saved(%x: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %y: !vllm_ir.buffer<4x6xf32> {vllm_ir.mutated}, %z: tensor<6xf32>) {
  %old = vllm_ir.read %x : !vllm_ir.buffer<4x6xf32> -> tensor<4x6xf32>
  %new = torch.call @aten.select_scatter.default(%old, %z, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  vllm_ir.write %new, %x : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
  vllm_ir.write %old, %y : tensor<4x6xf32>, !vllm_ir.buffer<4x6xf32>
  vllm_ir.return ()
}
