// RUN: vllm-ir-opt %s -p 'eliminate-clones{limit=3}' | filecheck %s

// The first rewrite puts the product in front of the update, the second puts the function into memory, and the third
// has the update in place. The scatter behind it stays an operation on values, and the final write stays.
// CHECK-LABEL: vllm_ir.func @main(
// CHECK: %twice = torch.call @aten.mul.Tensor(%column, 2) reads(%column)
// CHECK-NEXT: %put = torch.call @aten.index_put_.default(%layer, [%slots], %x, false) reads(%layer) writes(%layer)
// CHECK-NEXT: %new = torch.call @aten.select_scatter.default(%cache, %layer, 0, 1) reads(%cache, %layer)
// CHECK-NEXT: vllm_ir.write %new, %cache : tensor<2x16x4xf32>, !vllm_ir.buffer<2x16x4xf32>

vllm_ir.func functional @main(%cache: !vllm_ir.buffer<2x16x4xf32> {vllm_ir.mutated}, %slots: tensor<3xi64>, %x: tensor<3x4xf32>) -> tensor<2x4xf32> {
  %old = vllm_ir.read %cache : !vllm_ir.buffer<2x16x4xf32> -> tensor<2x16x4xf32>
  %column = torch.call @aten.select.int(%old, 1, 3) : (tensor<2x16x4xf32>) -> tensor<2x4xf32, #vllm_ir.layout<strides = [64, 1]>>
  %seen = torch.call @aten.clone.default(%column, memory_format = none) : (tensor<2x4xf32, #vllm_ir.layout<strides = [64, 1]>>) -> tensor<2x4xf32>
  %layer = torch.call @aten.select.int(%old, 0, 1) : (tensor<2x16x4xf32>) -> tensor<16x4xf32>
  %put = torch.call @aten.index_put.default(%layer, [%slots], %x, false) : (tensor<16x4xf32>, tensor<3xi64>, tensor<3x4xf32>) -> tensor<16x4xf32>
  %new = torch.call @aten.select_scatter.default(%old, %put, 0, 1) : (tensor<2x16x4xf32>, tensor<16x4xf32>) -> tensor<2x16x4xf32>
  %twice = torch.call @aten.mul.Tensor(%column, 2) : (tensor<2x4xf32, #vllm_ir.layout<strides = [64, 1]>>) -> tensor<2x4xf32>
  vllm_ir.write %new, %cache : tensor<2x16x4xf32>, !vllm_ir.buffer<2x16x4xf32>
  vllm_ir.return %twice : tensor<2x4xf32>
}
