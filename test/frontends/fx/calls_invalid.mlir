// What a text says of the operators that it calls has to be true: arguments, effects, results, windows.

// RUN: vllm-ir-opt %s -p print-aliases --verify-diagnostics --split-input-file | filecheck %s

// CHECK: operator @aten.no_such.default is not registered; import the module that defines it
vllm_ir.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = torch.call @aten.no_such.default(%x) : (tensor<4xf32>) -> tensor<4xf32>
  vllm_ir.return %y : tensor<4xf32>
}

// -----

// CHECK: @aten.add_.Tensor writes operands [0], the text states []
vllm_ir.func @main(%x: tensor<4xf32>) {
  %y = torch.call @aten.add_.Tensor(%x, 1, alpha = 1) : (tensor<4xf32>) -> tensor<4xf32>
  vllm_ir.return none
}

// -----

// CHECK: @aten.neg.default reads operands [0], which the text does not state
vllm_ir.func @main(%x: !vllm_ir.buffer<4xf32>) -> tensor<4xf32> {
  %y = torch.call @aten.neg.default(%x) : (!vllm_ir.buffer<4xf32>) -> tensor<4xf32>
  vllm_ir.return %y : tensor<4xf32>
}

// -----

// CHECK: @aten.bernoulli.default is random, the text states otherwise
vllm_ir.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = torch.call @aten.bernoulli.default(%x, generator = none) : (tensor<4xf32>) -> tensor<4xf32>
  vllm_ir.return %y : tensor<4xf32>
}

// -----

// CHECK: @aten.neg.default is not external, the text states otherwise
vllm_ir.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = torch.call @aten.neg.default(%x) external : (tensor<4xf32>) -> tensor<4xf32>
  vllm_ir.return %y : tensor<4xf32>
}

// -----

// CHECK: @aten.add.Tensor takes 3 arguments, 2 are given
vllm_ir.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = torch.call @aten.add.Tensor(%x, %x) : (tensor<4xf32>) -> tensor<4xf32>
  vllm_ir.return %y : tensor<4xf32>
}

// -----

// CHECK: @aten.add.Tensor takes the keywords alpha, here are beta
vllm_ir.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = torch.call @aten.add.Tensor(%x, %x, beta = 1) : (tensor<4xf32>) -> tensor<4xf32>
  vllm_ir.return %y : tensor<4xf32>
}

// -----

// CHECK: @aten.select.int: dim is "0", the schema takes int
vllm_ir.func @main(%x: tensor<4xf32>) -> tensor<f32> {
  %y = torch.call @aten.select.int(%x, "0", 0) : (tensor<4xf32>) -> tensor<f32>
  vllm_ir.return %y : tensor<f32>
}

// -----

// CHECK: @aten.select.int is a view, its first argument is 3 : i64, not operand 0
vllm_ir.func @main(%x: tensor<4xf32>) -> tensor<f32> {
  %y = torch.call @aten.select.int(3, 0, 0) : () -> tensor<f32>
  vllm_ir.return %y : tensor<f32>
}

// -----

// CHECK: @python._operator.add takes operands, no keywords, and gives one number
vllm_ir.func @main() {
  %y = torch.call @python._operator.add(1, 2) : () -> i64
  vllm_ir.return none
}

// -----

// CHECK: @python._operator.add is a function of numbers, tensor<4xf32> is none
vllm_ir.func @main(%x: tensor<4xf32>) {
  %y = torch.call @python._operator.add(%x, 2) : (tensor<4xf32>) -> i64
  vllm_ir.return none
}

// -----

// CHECK: @aten.neg.default gives 1 results, the text states 2
vllm_ir.func @main(%x: tensor<4xf32>) {
  %y, %z = torch.call @aten.neg.default(%x) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  vllm_ir.return none
}

// -----

// CHECK: @aten.neg.default gives 4 of f32, the text states 5 of f32 for %y
vllm_ir.func @main(%x: tensor<4xf32>) {
  %y = torch.call @aten.neg.default(%x) : (tensor<4xf32>) -> tensor<5xf32>
  vllm_ir.return none
}

// -----

// CHECK: @aten.neg.default gives 4 of f32, the text states a number i64 for %y
vllm_ir.func @main(%x: tensor<4xf32>) {
  %y = torch.call @aten.neg.default(%x) : (tensor<4xf32>) -> i64
  vllm_ir.return none
}

// -----

// CHECK: @aten.mm.default: aten.mm.default refuses its arguments: a must be 2D
vllm_ir.func @main(%x: tensor<4xf32>) {
  %y = torch.call @aten.mm.default(%x, %x) : (tensor<4xf32>) -> tensor<4xf32>
  vllm_ir.return none
}

// -----

// CHECK: @aten.select_scatter.default puts 4 where the base has 8
vllm_ir.func @main(%x: tensor<4x8xf32>, %y: tensor<4xf32>) {
  %z = torch.call @aten.select_scatter.default(%x, %y, 0, 1) : (tensor<4x8xf32>, tensor<4xf32>) -> tensor<4x8xf32>
  vllm_ir.return none
}

// -----

// CHECK: @aten.select_scatter.default: aten.select.int refuses its arguments: Dimension out of range
vllm_ir.func @main(%x: tensor<4x8xf32>, %y: tensor<8xf32>) {
  %z = torch.call @aten.select_scatter.default(%x, %y, 2, 1) : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  vllm_ir.return none
}

// -----

// CHECK: @aten.neg.default is not a view operator
vllm_ir.func @main(%x: !vllm_ir.buffer<4xf32>) {
  %y = vllm_ir.view @aten.neg.default(%x) : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<4xf32>
  vllm_ir.return none
}

// -----

// CHECK: @aten.select.int: PyTorch refuses the view: select(): index 4 out of range for tensor of size [4] at dimension 0
vllm_ir.func @main(%x: !vllm_ir.buffer<4xf32>) {
  %y = vllm_ir.view @aten.select.int(%x, 0, 4) : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<f32>
  vllm_ir.return none
}

// -----

// CHECK: @aten.select.int gives !vllm_ir.buffer<f32, offset = 2>, the text states !vllm_ir.buffer<f32, offset = 1> for %y
vllm_ir.func @main(%x: !vllm_ir.buffer<4xf32>) {
  %y = vllm_ir.view @aten.select.int(%x, 0, 2) : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<f32, offset = 1>
  vllm_ir.return none
}

// -----

// CHECK: @aten.unbind.int gives 2 views, the text states 1
vllm_ir.func @main(%x: !vllm_ir.buffer<2xf32>) {
  %y = vllm_ir.view @aten.unbind.int(%x, 0) : (!vllm_ir.buffer<2xf32>) -> !vllm_ir.buffer<f32>
  vllm_ir.return none
}

// -----

// CHECK: 'nowhere' is not a device of PyTorch
vllm_ir.func @main(%x: tensor<4xf32, #vllm_ir.layout<device = "nowhere">>) {
  vllm_ir.return none
}

// -----

// CHECK: @aten.as_strided.default: PyTorch refuses the view: its last element is number 1152921504606846978 of the storage
vllm_ir.func @main(%x: !vllm_ir.buffer<4xf32>) {
  %y = vllm_ir.view @aten.as_strided.default(%x, [3], [1], 1152921504606846976) : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<3xf32, offset = 3>
  vllm_ir.return none
}

// -----

// What is called is a function or an operator, by its name.
// CHECK: @aten.relu.default is an operator's name, which a function cannot have
vllm_ir.func @aten.relu.default(%x : tensor<4xf32>) -> tensor<4xf32> {
  %y = torch.call @aten.relu.default() : () -> tensor<4xf32>
  vllm_ir.return %y : tensor<4xf32>
}

// -----

// A view of a buffer is a window; as a value, it would change with the buffer.
// CHECK: @aten.unsqueeze.default gives a window onto !vllm_ir.buffer<3xf32>, the text states new memory for %y
vllm_ir.func @main(%x: !vllm_ir.buffer<3xf32>) {
  %y = torch.call @aten.unsqueeze.default(%x, 1) reads(%x) : (!vllm_ir.buffer<3xf32>) -> tensor<3x1xf32>
  vllm_ir.return none
}

// -----

// CHECK: @aten.reshape.default gives new memory, the text states a window for %y
vllm_ir.func @main(%x: !vllm_ir.buffer<2x3xf32, strides = [1, 2]>) {
  %y = vllm_ir.view @aten.reshape.default(%x, [6]) : (!vllm_ir.buffer<2x3xf32, strides = [1, 2]>) -> !vllm_ir.buffer<6xf32>
  vllm_ir.return none
}

// -----

// CHECK: @aten._unsafe_view.default gives a window onto
vllm_ir.func @main(%x: !vllm_ir.buffer<2x3xf32>) {
  %y = torch.call @aten._unsafe_view.default(%x, [6]) reads(%x) : (!vllm_ir.buffer<2x3xf32>) -> tensor<6xf32>
  vllm_ir.return none
}

// -----

// CHECK: @aten.unsqueeze.default: PyTorch refuses the view: Dimension out of range
vllm_ir.func @main(%x: !vllm_ir.buffer<3xf32>) {
  %y = torch.call @aten.unsqueeze.default(%x, 5) reads(%x) : (!vllm_ir.buffer<3xf32>) -> tensor<3x1xf32>
  vllm_ir.return none
}
