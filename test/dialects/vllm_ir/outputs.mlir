// RUN: vllm-ir-opt %s --split-input-file | vllm-ir-opt --split-input-file | filecheck %s

// A pure function: the first of two results is the new value of an argument, the second a window onto it.
// CHECK-LABEL: vllm_ir.func functional @pure(%x: tensor<4xf32> {vllm_ir.storage = 0 : i64}, %y: tensor<2xf32> {vllm_ir.storage = 0 : i64}) -> (tensor<4xf32> {vllm_ir.aliases = 0 : i64}, tensor<2xf32> {vllm_ir.output_view = {input = 0 : i64, shape = [2 : i64], strides = [1 : i64], offset = 1 : i64, dtype = f32}}, tensor<2xf32> {vllm_ir.aliases = 1 : i64}) attributes {vllm_ir.original_output_count = 3 : i64} {
// CHECK: vllm_ir.return (%x, none, %y, %y as 2) : tensor<4xf32>, tensor<2xf32>, tensor<2xf32>
vllm_ir.func functional @pure(%x: tensor<4xf32> {vllm_ir.storage = 0 : i64}, %y: tensor<2xf32> {vllm_ir.storage = 0 : i64}) -> (tensor<4xf32> {vllm_ir.aliases = 0 : i64}, tensor<2xf32> {vllm_ir.output_view = {input = 0 : i64, shape = [2 : i64], strides = [1 : i64], offset = 1 : i64, dtype = f32}}, tensor<2xf32> {vllm_ir.aliases = 1 : i64}) attributes {vllm_ir.original_output_count = 3 : i64} {
  vllm_ir.return (%x, none, %y, %y as 2) : tensor<4xf32>, tensor<2xf32>, tensor<2xf32>
}

// -----

// An argument whose window changes is aliased by a result of its final window.
// CHECK-LABEL: vllm_ir.func functional @window
vllm_ir.func functional @window(%x: tensor<2x3xf32> {vllm_ir.window = !vllm_ir.buffer<3x2xf32, strides = [1, 3]>}) -> (tensor<3x2xf32, #vllm_ir.layout<strides = [1, 3]>> {vllm_ir.aliases = 0 : i64}) attributes {vllm_ir.original_output_count = 0 : i64} {
  %t = torch.call @aten.t.default(%x) : (tensor<2x3xf32>) -> tensor<3x2xf32, #vllm_ir.layout<strides = [1, 3]>>
  vllm_ir.return (%t) : tensor<3x2xf32, #vllm_ir.layout<strides = [1, 3]>>
}
