// RUN: vllm-ir-opt %s -p functionalize,lower,eliminate-clones --bisect | filecheck %s --check-prefix RIGHT
// RUN: not vllm-ir-opt %s --load %p/faulty_pass.py -p functionalize,faulty,lower --bisect --reproducers %t.d | filecheck %s

// RIGHT: no pass is wrong

// CHECK:      pass 2, faulty, is wrong: the pass: FAILED: output 0: 8 of 8 elements differ
// CHECK-NEXT: pass 'faulty' has no limit of rewrites
// CHECK-NEXT: vllm-ir-opt {{.*}}before.mlir -p faulty --validate --load={{.*}}faulty_pass.py

vllm_ir.func @main(%x: tensor<8xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
  %sub = torch.call @aten.sub.Tensor(%x, %y, alpha = 1) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  vllm_ir.return %sub : tensor<8xf32>
}
