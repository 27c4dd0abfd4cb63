// RUN: vllm-ir-opt %s --verify-diagnostics --parsing-diagnostics --split-input-file | filecheck %s

// CHECK: result 0 (%x) names argument 2, the function has 1
vllm_ir.func functional @main(%x: tensor<4xf32>) -> (tensor<4xf32> {vllm_ir.aliases = 2 : i64}) attributes {vllm_ir.original_output_count = 1 : i64} {
  vllm_ir.return (%x) : tensor<4xf32>
}

// -----

// CHECK: result 0 (%x) names argument -1, the function has 1
vllm_ir.func functional @main(%x: tensor<4xf32>) -> (tensor<4xf32> {vllm_ir.aliases = -1 : i64}) attributes {vllm_ir.original_output_count = 1 : i64} {
  vllm_ir.return (%x) : tensor<4xf32>
}

// -----

// CHECK: results 0 and 1 both alias argument 0
vllm_ir.func functional @main(%x: tensor<4xf32>) -> (tensor<4xf32> {vllm_ir.aliases = 0 : i64}, tensor<4xf32> {vllm_ir.aliases = 0 : i64}) attributes {vllm_ir.original_output_count = 2 : i64} {
  vllm_ir.return (%x, %x as 1) : tensor<4xf32>, tensor<4xf32>
}

// -----

// CHECK: result 0 (%y) has type tensor<2x2xf32>, but aliases argument 0 of type tensor<4xf32>
vllm_ir.func functional @main(%x: tensor<4xf32>, %y: tensor<2x2xf32>) -> (tensor<2x2xf32> {vllm_ir.aliases = 0 : i64}) attributes {vllm_ir.original_output_count = 1 : i64} {
  vllm_ir.return (%y) : tensor<2x2xf32>
}

// -----

// CHECK: result 0 (%y) has type tensor<4xi32>, but aliases argument 0 of type tensor<4xf32>
vllm_ir.func functional @main(%x: tensor<4xf32>, %y: tensor<4xi32>) -> (tensor<4xi32> {vllm_ir.aliases = 0 : i64}) attributes {vllm_ir.original_output_count = 1 : i64} {
  vllm_ir.return (%y) : tensor<4xi32>
}

// -----

// CHECK: result 0 (%y) has type tensor<2x2xf32, #vllm_ir.layout<strides = [1, 2]>>, but aliases argument 0 of type tensor<2x2xf32>
vllm_ir.func functional @main(%x: tensor<2x2xf32>, %y: tensor<2x2xf32, #vllm_ir.layout<strides = [1, 2]>>) -> (tensor<2x2xf32, #vllm_ir.layout<strides = [1, 2]>> {vllm_ir.aliases = 0 : i64}) attributes {vllm_ir.original_output_count = 1 : i64} {
  vllm_ir.return (%y) : tensor<2x2xf32, #vllm_ir.layout<strides = [1, 2]>>
}

// -----

// CHECK: result 0 (%n) names argument 0 (%n), which has type i64 and no memory
vllm_ir.func functional @main(%n: i64) -> (i64 {vllm_ir.aliases = 0 : i64}) attributes {vllm_ir.original_output_count = 1 : i64} {
  vllm_ir.return (%n) : i64
}

// -----

// CHECK: result 0 (%x) names argument 0 (%x), which is donated
vllm_ir.func functional @main(%x: tensor<4xf32> {vllm_ir.donated}) -> (tensor<4xf32> {vllm_ir.aliases = 0 : i64}) attributes {vllm_ir.original_output_count = 1 : i64} {
  vllm_ir.return (%x) : tensor<4xf32>
}

// -----

// CHECK: vllm_ir.aliases of result 0 (%x) is "x", it takes an integer
vllm_ir.func functional @main(%x: tensor<4xf32>) -> (tensor<4xf32> {vllm_ir.aliases = "x"}) attributes {vllm_ir.original_output_count = 1 : i64} {
  vllm_ir.return (%x) : tensor<4xf32>
}

// -----

// CHECK: result 0 (%x) has both vllm_ir.aliases and vllm_ir.output_view, it is one of the two
vllm_ir.func functional @main(%x: tensor<4xf32>) -> (tensor<4xf32> {vllm_ir.aliases = 0 : i64, vllm_ir.output_view = {input = 0 : i64, shape = [4 : i64], strides = [1 : i64], offset = 0 : i64, dtype = f32}}) attributes {vllm_ir.original_output_count = 1 : i64} {
  vllm_ir.return (%x) : tensor<4xf32>
}

// -----

// CHECK: result 0 (%x) is output 0, behind the 0 of the program, but has no vllm_ir.aliases
vllm_ir.func functional @main(%x: tensor<4xf32>) -> (tensor<4xf32>) attributes {vllm_ir.original_output_count = 0 : i64} {
  vllm_ir.return (%x) : tensor<4xf32>
}

// -----

// CHECK: vllm_ir.original_output_count is 2, there are 1 outputs
vllm_ir.func functional @main(%x: tensor<4xf32>) -> (tensor<4xf32>) attributes {vllm_ir.original_output_count = 2 : i64} {
  vllm_ir.return (%x) : tensor<4xf32>
}

// -----

// CHECK: vllm_ir.original_output_count is -1, there are 1 outputs
vllm_ir.func functional @main(%x: tensor<4xf32>) -> (tensor<4xf32>) attributes {vllm_ir.original_output_count = -1 : i64} {
  vllm_ir.return (%x) : tensor<4xf32>
}

// -----

// CHECK: vllm_ir.original_output_count is "one", it takes an integer
vllm_ir.func functional @main(%x: tensor<4xf32>) -> (tensor<4xf32>) attributes {vllm_ir.original_output_count = "one"} {
  vllm_ir.return (%x) : tensor<4xf32>
}

// -----

// CHECK: with vllm_ir.original_output_count the outputs are a flat tuple, not 
vllm_ir.func functional @main(%x: tensor<4xf32>) -> (tensor<4xf32>) attributes {vllm_ir.original_output_count = 1 : i64} {
  vllm_ir.return %x : tensor<4xf32>
}

// -----

// CHECK: with vllm_ir.original_output_count the outputs are a flat tuple, not 
vllm_ir.func functional @main(%x: tensor<4xf32>) -> (tensor<4xf32>) attributes {vllm_ir.original_output_count = 1 : i64} {
  vllm_ir.return ([%x]) : tensor<4xf32>
}

// -----

// CHECK: with vllm_ir.original_output_count each output is an operand of its own, in order; the operands are [0, 0]
vllm_ir.func functional @main(%x: tensor<4xf32>) -> (tensor<4xf32>) attributes {vllm_ir.original_output_count = 2 : i64} {
  vllm_ir.return (%x, %x) : tensor<4xf32>
}

// -----

// CHECK: vllm_ir.output_view of result 0 (%x) has the unknown field 'size'; known are input, shape, strides, offset, dtype
vllm_ir.func functional @main(%x: tensor<4xf32>) -> (tensor<4xf32> {vllm_ir.output_view = {input = 0 : i64, shape = [4 : i64], strides = [1 : i64], offset = 0 : i64, dtype = f32, size = 1 : i64}}) attributes {vllm_ir.original_output_count = 1 : i64} {
  vllm_ir.return (%x) : tensor<4xf32>
}

// -----

// CHECK: vllm_ir.output_view of result 0 (%x) has no 'input'
vllm_ir.func functional @main(%x: tensor<4xf32>) -> (tensor<4xf32> {vllm_ir.output_view = {shape = [4 : i64], strides = [1 : i64], offset = 0 : i64, dtype = f32}}) attributes {vllm_ir.original_output_count = 1 : i64} {
  vllm_ir.return (%x) : tensor<4xf32>
}

// -----

// CHECK: result 0 (%x) names argument 1, the function has 1
vllm_ir.func functional @main(%x: tensor<4xf32>) -> (tensor<4xf32> {vllm_ir.output_view = {input = 1 : i64, shape = [4 : i64], strides = [1 : i64], offset = 0 : i64, dtype = f32}}) attributes {vllm_ir.original_output_count = 1 : i64} {
  vllm_ir.return (%x) : tensor<4xf32>
}

// -----

// CHECK: 'input' of vllm_ir.output_view of result 0 (%x) is "x", it takes an integer
vllm_ir.func functional @main(%x: tensor<4xf32>) -> (tensor<4xf32> {vllm_ir.output_view = {input = "x", shape = [4 : i64], strides = [1 : i64], offset = 0 : i64, dtype = f32}}) attributes {vllm_ir.original_output_count = 1 : i64} {
  vllm_ir.return (%x) : tensor<4xf32>
}

// -----

// CHECK: 'dtype' of vllm_ir.output_view of result 0 (%x) is i32, its elements are f32
vllm_ir.func functional @main(%x: tensor<4xf32>) -> (tensor<4xf32> {vllm_ir.output_view = {input = 0 : i64, shape = [4 : i64], strides = [1 : i64], offset = 0 : i64, dtype = i32}}) attributes {vllm_ir.original_output_count = 1 : i64} {
  vllm_ir.return (%x) : tensor<4xf32>
}

// -----

// CHECK: 'shape' of vllm_ir.output_view of result 0 (%x) is [5], its own is [4]
vllm_ir.func functional @main(%x: tensor<4xf32>) -> (tensor<4xf32> {vllm_ir.output_view = {input = 0 : i64, shape = [5 : i64], strides = [1 : i64], offset = 0 : i64, dtype = f32}}) attributes {vllm_ir.original_output_count = 1 : i64} {
  vllm_ir.return (%x) : tensor<4xf32>
}

// -----

// CHECK: 'shape' of vllm_ir.output_view of result 0 (%x) is 4 : i64, it takes a list
vllm_ir.func functional @main(%x: tensor<4xf32>) -> (tensor<4xf32> {vllm_ir.output_view = {input = 0 : i64, shape = 4 : i64, strides = [1 : i64], offset = 0 : i64, dtype = f32}}) attributes {vllm_ir.original_output_count = 1 : i64} {
  vllm_ir.return (%x) : tensor<4xf32>
}

// -----

// CHECK: 'strides' of vllm_ir.output_view of result 0 (%x) has 2 entries, its shape 1
vllm_ir.func functional @main(%x: tensor<4xf32>) -> (tensor<4xf32> {vllm_ir.output_view = {input = 0 : i64, shape = [4 : i64], strides = [1 : i64, 1 : i64], offset = 0 : i64, dtype = f32}}) attributes {vllm_ir.original_output_count = 1 : i64} {
  vllm_ir.return (%x) : tensor<4xf32>
}

// -----

// CHECK: 'strides' of vllm_ir.output_view of result 0 (%x) holds -1 : i64, it takes sizes in elements
vllm_ir.func functional @main(%x: tensor<4xf32>) -> (tensor<4xf32> {vllm_ir.output_view = {input = 0 : i64, shape = [4 : i64], strides = [-1 : i64], offset = 0 : i64, dtype = f32}}) attributes {vllm_ir.original_output_count = 1 : i64} {
  vllm_ir.return (%x) : tensor<4xf32>
}

// -----

// CHECK: 'offset' of vllm_ir.output_view of result 0 (%x) holds -4 : i64, it takes sizes in elements
vllm_ir.func functional @main(%x: tensor<4xf32>) -> (tensor<4xf32> {vllm_ir.output_view = {input = 0 : i64, shape = [4 : i64], strides = [1 : i64], offset = -4 : i64, dtype = f32}}) attributes {vllm_ir.original_output_count = 1 : i64} {
  vllm_ir.return (%x) : tensor<4xf32>
}

// -----

// CHECK: result 0 (%n) has vllm_ir.output_view but type i64
vllm_ir.func functional @main(%x: tensor<4xf32>, %n: i64) -> (i64 {vllm_ir.output_view = {input = 0 : i64, shape = [4 : i64], strides = [1 : i64], offset = 0 : i64, dtype = f32}}) attributes {vllm_ir.original_output_count = 1 : i64} {
  vllm_ir.return (%n) : i64
}

// -----

// CHECK: %x is a buffer, a pure function takes tensors
vllm_ir.func functional @main(%x: !vllm_ir.buffer<4xf32>) -> (tensor<4xf32>) attributes {vllm_ir.original_output_count = 1 : i64} {
  %0 = vllm_ir.read %x : !vllm_ir.buffer<4xf32> -> tensor<4xf32>
  vllm_ir.return (%0) : tensor<4xf32>
}

// -----

// CHECK: vllm_ir.alloc gives the buffer %b in a pure function
vllm_ir.func functional @main(%x: tensor<4xf32>) -> (tensor<4xf32>) attributes {vllm_ir.original_output_count = 1 : i64} {
  %b = vllm_ir.alloc %x : tensor<4xf32> -> !vllm_ir.buffer<4xf32>
  vllm_ir.return (%x) : tensor<4xf32>
}

// -----

// CHECK: %x is marked vllm_ir.mutated but has type tensor<4xf32>, not a buffer
vllm_ir.func functional @main(%x: tensor<4xf32> {vllm_ir.mutated}) -> (tensor<4xf32>) attributes {vllm_ir.original_output_count = 1 : i64} {
  vllm_ir.return (%x) : tensor<4xf32>
}

// -----

// CHECK: result 0 (%y) names argument 0, but its storage is that of argument 1 (%y)
vllm_ir.func @main(%x: !vllm_ir.buffer<4xf32>, %y: !vllm_ir.buffer<4xf32>) -> (!vllm_ir.buffer<4xf32> {vllm_ir.aliases = 0 : i64}) attributes {vllm_ir.original_output_count = 1 : i64} {
  vllm_ir.return (%y) : !vllm_ir.buffer<4xf32>
}

// -----

// CHECK: result 0 (%x) is memory of argument 0 (%x) and has neither vllm_ir.aliases nor vllm_ir.output_view
vllm_ir.func @main(%x: !vllm_ir.buffer<4xf32>) -> (!vllm_ir.buffer<4xf32>) attributes {vllm_ir.original_output_count = 1 : i64} {
  vllm_ir.return (%x) : !vllm_ir.buffer<4xf32>
}

// -----

// CHECK: result 0 (%x) has the unknown attribute vllm_ir.output_view; known are vllm_ir.aliases
vllm_ir.func @main(%x: tensor<4xf32>) -> (tensor<4xf32> {vllm_ir.output_view = {input = 0 : i64, shape = [4 : i64], strides = [1 : i64], offset = 0 : i64, dtype = f32}}) {
  vllm_ir.return %x : tensor<4xf32>
}
