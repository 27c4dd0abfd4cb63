// RUN: vllm-ir-opt %s -p print-liveness | filecheck %s
// RUN: vllm-ir-opt %s -p eliminate-clones,print-liveness | filecheck %s --check-prefix MEMORY

// A value dies where its storage is used for the last time, through whatever view.
// CHECK-LABEL: vllm_ir.func functional @views(%x: tensor<4x6xf32>) -> tensor<4xf32> attributes {vllm_ir.live_out = ["%x: the caller's", "%all: returned"]} {
// CHECK-NEXT: %twice = torch.call @aten.mul.Tensor(%x, 2) : (tensor<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: %row = torch.call @aten.select.int(%twice, 0, 2) : (tensor<4x6xf32>) -> tensor<6xf32>
// CHECK-NEXT: %column = torch.call @aten.select.int(%twice, 1, 0) : (tensor<4x6xf32>) -> tensor<4xf32, #vllm_ir.layout<strides = [6]>>
// CHECK-NEXT: %sum = torch.call @aten.sum.default(%row, dtype = none) : (tensor<6xf32>) -> tensor<f32>
// CHECK-NEXT: %all = torch.call @aten.add.Tensor(%column, %sum, alpha = 1) attributes {vllm_ir.dies = ["%twice", "%sum"]} : (tensor<4xf32, #vllm_ir.layout<strides = [6]>>, tensor<f32>) -> tensor<4xf32>
// CHECK-NEXT: vllm_ir.return %all : tensor<4xf32>
// CHECK-NEXT: }
vllm_ir.func functional @views(%x: tensor<4x6xf32>) -> tensor<4xf32> {
  %twice = torch.call @aten.mul.Tensor(%x, 2) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %row = torch.call @aten.select.int(%twice, 0, 2) : (tensor<4x6xf32>) -> tensor<6xf32>
  %column = torch.call @aten.select.int(%twice, 1, 0) : (tensor<4x6xf32>) -> tensor<4xf32, #vllm_ir.layout<strides = [6]>>
  %sum = torch.call @aten.sum.default(%row, dtype = none) : (tensor<6xf32>) -> tensor<f32>
  %all = torch.call @aten.add.Tensor(%column, %sum, alpha = 1) : (tensor<4xf32, #vllm_ir.layout<strides = [6]>>, tensor<f32>) -> tensor<4xf32>
  vllm_ir.return %all : tensor<4xf32>
}

// The memory of a result lives as long as any view of it that is returned; what nobody uses dies where it is made.
// CHECK-LABEL: vllm_ir.func functional @returned(%x: tensor<4x6xf32>) -> tensor<6xf32> attributes {vllm_ir.live_out = ["%x: the caller's", "%twice: returned"]} {
// CHECK-NEXT: %twice = torch.call @aten.mul.Tensor(%x, 2) : (tensor<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: %unused = torch.call @aten.neg.default(%twice) attributes {vllm_ir.dies = ["%unused"]} : (tensor<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: %row = torch.call @aten.select.int(%twice, 0, 2) : (tensor<4x6xf32>) -> tensor<6xf32>
// CHECK-NEXT: vllm_ir.return %row : tensor<6xf32>
// CHECK-NEXT: }
vllm_ir.func functional @returned(%x: tensor<4x6xf32>) -> tensor<6xf32> {
  %twice = torch.call @aten.mul.Tensor(%x, 2) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %unused = torch.call @aten.neg.default(%twice) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %row = torch.call @aten.select.int(%twice, 0, 2) : (tensor<4x6xf32>) -> tensor<6xf32>
  vllm_ir.return %row : tensor<6xf32>
}

// The caller's memory outlives the function, donated memory does not. Constants never die.
// CHECK-LABEL: vllm_ir.func functional @arguments(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}, %y: !vllm_ir.buffer<4xf32> {vllm_ir.donated}) -> (!vllm_ir.buffer<4xf32> {vllm_ir.aliases = 0 : i64}) attributes {vllm_ir.live_out = ["%x: the caller's, mutated, returned", "%c: constant"]} {
// CHECK-NEXT: %old = vllm_ir.read %x : !vllm_ir.buffer<4xf32> -> tensor<4xf32>
// CHECK-NEXT: %given = vllm_ir.read %y : !vllm_ir.buffer<4xf32> -> tensor<4xf32>
// CHECK-NEXT: %c = torch.constant "0000803f000000400000404000008040" : tensor<4xf32>
// CHECK-NEXT: %sum = torch.call @aten.add.Tensor(%given, %c, alpha = 1) attributes {vllm_ir.dies = ["%y"]} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: %new = torch.call @aten.mul.Tensor(%sum, %old) attributes {vllm_ir.dies = ["%sum"]} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: vllm_ir.write %new, %x {vllm_ir.dies = ["%new"]} : tensor<4xf32>, !vllm_ir.buffer<4xf32>
// CHECK-NEXT: vllm_ir.return %x : !vllm_ir.buffer<4xf32>
// CHECK-NEXT: }
vllm_ir.func functional @arguments(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}, %y: !vllm_ir.buffer<4xf32> {vllm_ir.donated}) -> (!vllm_ir.buffer<4xf32> {vllm_ir.aliases = 0 : i64}) {
  %old = vllm_ir.read %x : !vllm_ir.buffer<4xf32> -> tensor<4xf32>
  %given = vllm_ir.read %y : !vllm_ir.buffer<4xf32> -> tensor<4xf32>
  %c = torch.constant "0000803f000000400000404000008040" : tensor<4xf32>
  %sum = torch.call @aten.add.Tensor(%given, %c, alpha = 1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %new = torch.call @aten.mul.Tensor(%sum, %old) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  vllm_ir.write %new, %x : tensor<4xf32>, !vllm_ir.buffer<4xf32>
  vllm_ir.return %x : !vllm_ir.buffer<4xf32>
}

// Behind eliminate-clones, the updated value is in the memory of the old one: both die together.
// CHECK-LABEL: vllm_ir.func functional @updated(%x: tensor<4x6xf32>, %y: tensor<6xf32>) -> tensor<f32> attributes {vllm_ir.live_out = ["%x: the caller's", "%y: the caller's", "%sum: returned"]} {
// CHECK-NEXT: %old = torch.call @aten.mul.Tensor(%x, 2) : (tensor<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: %new = torch.call @aten.select_scatter.default(%old, %y, 0, 2) attributes {vllm_ir.dies = ["%old"]} : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: %sum = torch.call @aten.sum.default(%new, dtype = none) attributes {vllm_ir.dies = ["%new"]} : (tensor<4x6xf32>) -> tensor<f32>
// CHECK-NEXT: vllm_ir.return %sum : tensor<f32>
// CHECK-NEXT: }
vllm_ir.func functional @updated(%x: tensor<4x6xf32>, %y: tensor<6xf32>) -> tensor<f32> {
  %old = torch.call @aten.mul.Tensor(%x, 2) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %new = torch.call @aten.select_scatter.default(%old, %y, 0, 2) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  %sum = torch.call @aten.sum.default(%new, dtype = none) : (tensor<4x6xf32>) -> tensor<f32>
  vllm_ir.return %sum : tensor<f32>
}
// MEMORY-LABEL: vllm_ir.func @updated
// MEMORY-NEXT: %old = torch.call @aten.mul.Tensor(%x, 2) : (tensor<4x6xf32>) -> tensor<4x6xf32>
// MEMORY-NEXT: %old_1 = vllm_ir.alloc %old {vllm_ir.dies = ["%old"]}
// MEMORY-NEXT: %new = vllm_ir.view @aten.select.int(%old_1, 0, 2) :
// MEMORY-NEXT: %new_1 = torch.call @aten.copy_.default(%new, %y, false) reads(%new) writes(%new) returns [0] :
// MEMORY-NEXT: %sum = torch.call @aten.sum.default(%old_1, dtype = none) reads(%old_1) attributes {vllm_ir.dies = ["%old_1"]}
