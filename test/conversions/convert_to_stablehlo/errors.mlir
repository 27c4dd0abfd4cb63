// RUN: vllm-ir-opt %s -p convert-to-stablehlo --split-input-file --verify-diagnostics | filecheck %s

// CHECK: argument %x is memory (!vllm_ir.buffer<2xf32>); run alias-outputs,functionalize first
vllm_ir.func @main(%x: !vllm_ir.buffer<2xf32>) -> () {
  vllm_ir.return ()
}

// -----

// CHECK: dimension 1 of argument %x has the symbolic size s0; only static sizes are converted: run specialize{sizes="s0=16"} first
vllm_ir.func functional @main(%x: tensor<2x?xf32, #vllm_ir.layout<sizes = [2, "s0"]>>) -> () {
  vllm_ir.return ()
}

// -----

// CHECK: @aten.rand.default: it draws random numbers, which a StableHLO program would draw differently; pass them in as an argument
vllm_ir.func functional @main() -> tensor<2xf32> {
  %y = torch.call @aten.rand.default([2], dtype = none, layout = none, device = none, pin_memory = none) random : () -> tensor<2xf32>
  vllm_ir.return (%y) : tensor<2xf32>
}

// -----

// CHECK: user.py:7: @aten.cholesky.default: it has no StableHLO form; write it with operators that docs/stablehlo.md lists
vllm_ir.func functional @main(%x: tensor<2x2xf32>) -> tensor<2x2xf32> {
  %y = torch.call @aten.cholesky.default(%x, false) : (tensor<2x2xf32>) -> tensor<2x2xf32> loc("user.py":7:0)
  vllm_ir.return (%y) : tensor<2x2xf32>
}

// -----

// CHECK: @aten.i0.default: it is defined by @prims.bessel_i0.default, which cannot be converted: it has no StableHLO form
vllm_ir.func functional @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %y = torch.call @aten.i0.default(%x) : (tensor<2xf32>) -> tensor<2xf32>
  vllm_ir.return (%y) : tensor<2xf32>
}

// -----

// CHECK: @aten.add_.Tensor gives 0 results, the text states 1
vllm_ir.func functional @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %y, %new = torch.call @aten.add_.Tensor(%x, 1, alpha = 1) updates [0] : (tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>)
  vllm_ir.return (%y) : tensor<2xf32>
}

// -----

// CHECK: StableHLO has no elements of type complex<f16>
vllm_ir.func functional @main(%x: tensor<2xcomplex<f16>>) -> () {
  vllm_ir.return ()
}

// -----

// CHECK: there is no function @main to convert; functions are ['other']
vllm_ir.func functional @other() -> () {
  vllm_ir.return ()
}
