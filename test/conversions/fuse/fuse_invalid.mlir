// RUN: not vllm-ir-opt %s -p 'fuse{only=add_rms}' 2>&1 | filecheck %s --check-prefix NAME
// RUN: not vllm-ir-opt %s -p 'fuse{numerics=loose}' 2>&1 | filecheck %s --check-prefix NUMERICS
// RUN: not vllm-ir-opt %s -p 'fuse{only=add_rms_norm require="add_rms_norm:2"}' 2>&1 | filecheck %s --check-prefix COUNT
// RUN: not vllm-ir-opt %s -p 'fuse{require="add_rms_norm:two"}' 2>&1 | filecheck %s --check-prefix REQUIRE
// RUN: not vllm-ir-opt %s -p 'fuse{only=recognize_rms_norm require=recognize_rms_norm}' 2>&1 | filecheck %s --check-prefix ONCE
// RUN: not vllm-ir-opt %s --explain-fusions 2>&1 | filecheck %s --check-prefix EXPLAIN
// RUN: vllm-ir-opt %s -p 'fuse{only=add_rms_norm,dual_rms_norm,recognize_silu_mul}' --explain-fusions 2>&1 | filecheck %s --check-prefix EXPLAINED

// NAME: unknown fusion 'add_rms', did you mean 'add_rms_norm'? fusions are
// NUMERICS: option numerics is 'loose', it takes one of exact, reordered, changed
// COUNT: fuse: add_rms_norm was applied 1 times, 2 times required
// REQUIRE: option require has 'add_rms_norm:two', it takes fusion:count or fusion
// ONCE: fuse: recognize_rms_norm was applied 0 times, at least once required
// EXPLAIN: there are no fusions to explain: the pipeline has no pass 'fuse'
// EXPLAINED: add_rms_norm: applied once
// EXPLAINED-NEXT: %a
// EXPLAINED-NEXT: dual_rms_norm: nothing resembles it, there is no aten.split_with_sizes.default
// EXPLAINED-NEXT: recognize_silu_mul: nothing resembles it, there is no aten.mul.Tensor and no aten.silu.default
vllm_ir.func functional @main(%x: tensor<3x8xf32>, %r: tensor<3x8xf32>) -> tensor<3x8xf32> {
  %s = torch.call @aten.add.Tensor(%x, %r, alpha = 1) : (tensor<3x8xf32>, tensor<3x8xf32>) -> tensor<3x8xf32>
  %a = vllm_ir.rms_norm %s : tensor<3x8xf32> {epsilon = 1.0e-05 : f64} -> tensor<3x8xf32>
  vllm_ir.return %a : tensor<3x8xf32>
}
