// RUN: vllm-ir-opt %s -p 'specialize{sizes="s1=9","s0=6" limit=1}' | filecheck %s

// Symbols become numbers one by one, in the order of the option.
// CHECK-LABEL: vllm_ir.func @main(%x: tensor<?x9xf32, #vllm_ir.layout<sizes = ["s0", 9]>>)
// CHECK-NEXT: %size = torch.call @aten.sym_size.int(%x, 0)
// CHECK-NEXT: vllm_ir.return %size : i64

vllm_ir.func @main(%x: tensor<?x?xf32, #vllm_ir.layout<sizes = ["s0", "s1"]>>) -> i64 {
  %size = torch.call @aten.sym_size.int(%x, 0) : (tensor<?x?xf32, #vllm_ir.layout<sizes = ["s0", "s1"]>>) -> i64
  vllm_ir.return %size : i64
}
