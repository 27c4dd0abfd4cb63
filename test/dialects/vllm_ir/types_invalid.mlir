// RUN: vllm-ir-opt %s --verify-diagnostics --parsing-diagnostics --split-input-file | filecheck %s

// CHECK: types_invalid.mlir:5:33
// CHECK: sizes has 1 entries for 2 dimensions
"test.op"() {t = !vllm_ir.buffer<?x8xf32, sizes = ["s0"]>} : () -> ()

// -----

// CHECK: strides has 3 entries for 1 dimensions
"test.op"() {t = !vllm_ir.buffer<8xf32, strides = [1, 2, 3]>} : () -> ()

// -----

// CHECK: strides of dimension 1 is -1, which is negative
"test.op"() {t = !vllm_ir.buffer<2x8xf32, strides = [1, -1]>} : () -> ()

// -----

// CHECK: sizes of dimension 0 is -4, which is negative
"test.op"() {t = !vllm_ir.buffer<8xf32, sizes = [-4]>} : () -> ()

// -----

// CHECK: offset is -3, which is negative
"test.op"() {t = !vllm_ir.buffer<8xf32, offset = -3>} : () -> ()

// -----

// CHECK: sizes of dimension 0 is 7, the shape has 8
"test.op"() {t = !vllm_ir.buffer<8xf32, sizes = [7]>} : () -> ()

// -----

// CHECK: sizes of dimension 0 is 's0', the shape has 8
"test.op"() {t = !vllm_ir.buffer<8xf32, sizes = ["s0"]>} : () -> ()

// -----

// CHECK: sizes of dimension 0 is 7, the shape has ?
"test.op"() {t = !vllm_ir.buffer<?xf32, sizes = [7]>} : () -> ()

// -----

// CHECK: element type index is not a dtype of PyTorch
"test.op"() {t = !vllm_ir.buffer<8xindex>} : () -> ()

// -----

// CHECK: element type f80 is not a dtype of PyTorch
"test.op"() {t = !vllm_ir.buffer<8xf80>} : () -> ()

// -----

// CHECK: element type si8 is not a dtype of PyTorch
"test.op"() {t = !vllm_ir.buffer<8xsi8>} : () -> ()

// -----

// CHECK: element type tensor<2xf32> is not a dtype of PyTorch
"test.op"() {t = !vllm_ir.buffer<8xtensor<2xf32>>} : () -> ()

// -----

// CHECK: field 'stride' is unknown; fields are sizes, strides, offset, device
"test.op"() {t = !vllm_ir.buffer<8xf32, stride = [1]>} : () -> ()

// -----

// CHECK: field 'offset' is given twice
"test.op"() {t = !vllm_ir.buffer<8xf32, offset = 1, offset = 2>} : () -> ()

// -----

// CHECK: field 'offset' is unknown; fields are sizes, strides, device
"test.op"() {t = tensor<8xf32, #vllm_ir.layout<offset = 1>>} : () -> ()

// -----

// CHECK: Expected integer literal
"test.op"() {t = !vllm_ir.buffer<8xf32, strides = [true]>} : () -> ()

// -----

// CHECK: Operation does not verify: %x of type tensor<8xf32, #vllm_ir.layout<strides = [1, 1]>>: strides has 2 entries for 1 dimensions
vllm_ir.func @main(%x: tensor<8xf32, #vllm_ir.layout<strides = [1, 1]>>) -> () {
  vllm_ir.return none
}

// -----

// CHECK: Operation does not verify: %y of type tensor<8xindex>: element type index is not a dtype of PyTorch
vllm_ir.func @main() -> () {
  %y = torch.call @ns.op() : () -> tensor<8xindex>
  vllm_ir.return none
}

// -----

// CHECK: Operation does not verify: %x of type tensor<8xf32, "other">: encoding "other" is not a layout
vllm_ir.func @main(%x: tensor<8xf32, "other">) -> () {
  vllm_ir.return none
}
