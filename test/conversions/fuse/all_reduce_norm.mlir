// RUN: vllm-ir-opt %s -p 'fuse{only=add_rms_norm,all_reduce_rms_norm,all_reduce_rms_norm_rounded_last,all_reduce_rms_norm_static_quant explain=true}' --split-input-file | filecheck %s
// RUN: vllm-ir-opt %s -p 'fuse{only=all_reduce_rms_norm limit=0}' --split-input-file | filecheck %s --check-prefix NONE

// The registered op, and torch's collective with the wait; any group and any epsilon.
// CHECK: vllm_ir.fused = {all_reduce_rms_norm = ["%b", "%a"]}
// CHECK-LABEL: @plain(
// CHECK-NEXT: %a = "vllm_ir.all_reduce_rms_norm"(%x, %w) <{epsilon = 1.230000e-08 : f64, group_name = "tp", rounded_last = false}>
// CHECK-NEXT: %b = "vllm_ir.all_reduce_rms_norm"(%a) <{epsilon = 1.000000e-05 : f64, group_name = "1/0", rounded_last = false}>
// CHECK-NEXT: vllm_ir.return
// NONE-LABEL: @plain(
// NONE-NOT: all_reduce_rms_norm
vllm_ir.func functional @plain(%x: tensor<3x8xbf16>, %w: tensor<8xbf16>) -> tensor<3x8xbf16> {
  %s = "vllm_ir.all_reduce"(%x) <{group_name = "tp"}> : (tensor<3x8xbf16>) -> tensor<3x8xbf16>
  %a = vllm_ir.rms_norm %s : tensor<3x8xbf16> weight %w : tensor<8xbf16> {epsilon = 1.23e-08 : f64} -> tensor<3x8xbf16>
  %sent = torch.call @_c10d_functional.all_reduce.default(%a, "sum", "1/0") : (tensor<3x8xbf16>) -> tensor<3x8xbf16>
  %t = torch.call @_c10d_functional.wait_tensor.default(%sent) external : (tensor<3x8xbf16>) -> tensor<3x8xbf16>
  %b = vllm_ir.rms_norm %t : tensor<3x8xbf16> {epsilon = 1.0e-05 : f64} -> tensor<3x8xbf16>
  vllm_ir.return %b : tensor<3x8xbf16>
}

// -----

// The residual on either side of the sum.
// CHECK: vllm_ir.fused = {add_rms_norm = ["%a"], all_reduce_rms_norm = ["%a", "%b"]}
// CHECK-LABEL: @residual(
// CHECK-NEXT: %a, %u = "vllm_ir.all_reduce_fused_add_rms_norm"(%x, %r, %w)
// CHECK-NEXT: %b, %v = "vllm_ir.all_reduce_fused_add_rms_norm"(%a, %u, %w) <{epsilon = 1.000000e-05 : f64, group_name = "tp", rounded_last = false}>
// CHECK-NEXT: vllm_ir.return (%b, %v)
vllm_ir.func functional @residual(%x: tensor<3x8xf32>, %r: tensor<3x8xf32>, %w: tensor<8xf32>) -> (tensor<3x8xf32>, tensor<3x8xf32>) {
  %sent = torch.call @_c10d_functional.all_reduce.default(%x, "sum", "tp") : (tensor<3x8xf32>) -> tensor<3x8xf32>
  %s = torch.call @_c10d_functional.wait_tensor.default(%sent) external : (tensor<3x8xf32>) -> tensor<3x8xf32>
  %u = torch.call @aten.add.Tensor(%r, %s, alpha = 1) : (tensor<3x8xf32>, tensor<3x8xf32>) -> tensor<3x8xf32>
  %a = vllm_ir.rms_norm %u : tensor<3x8xf32> weight %w : tensor<8xf32> {epsilon = 1.0e-06 : f64} -> tensor<3x8xf32>
  %t = "vllm_ir.all_reduce"(%a) <{group_name = "tp"}> : (tensor<3x8xf32>) -> tensor<3x8xf32>
  %b, %v = vllm_ir.fused_add_rms_norm %t, %u : tensor<3x8xf32>, tensor<3x8xf32> weight %w : tensor<8xf32> {epsilon = 1.0e-05 : f64} -> tensor<3x8xf32>, tensor<3x8xf32>
  vllm_ir.return (%b, %v) : tensor<3x8xf32>, tensor<3x8xf32>
}

// -----

// A norm that is rounded last, as Gemma's, of the sum and of the sum with a residual.
// CHECK: vllm_ir.fused = {all_reduce_rms_norm_rounded_last = ["%c", "%a"]}
// CHECK-LABEL: @gemma(
// CHECK: %a = "vllm_ir.all_reduce_rms_norm"(%x, %w) <{{{.*}}rounded_last = true
// CHECK-NEXT: %c, %u = "vllm_ir.all_reduce_fused_add_rms_norm"(%a, %r, %w) <{{{.*}}rounded_last = true
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @gemma(%x: tensor<3x8xbf16>, %r: tensor<3x8xbf16>, %w: tensor<8xf32>) -> (tensor<3x8xbf16>, tensor<3x8xbf16>) {
  %s = "vllm_ir.all_reduce"(%x) <{group_name = "tp"}> : (tensor<3x8xbf16>) -> tensor<3x8xbf16>
  %f = torch.call @aten._to_copy.default(%s, dtype = f32, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (tensor<3x8xbf16>) -> tensor<3x8xf32>
  %b = vllm_ir.rms_norm %f : tensor<3x8xf32> weight %w : tensor<8xf32> {epsilon = 1.0e-06 : f64} -> tensor<3x8xf32>
  %a = torch.call @aten._to_copy.default(%b, dtype = bf16, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (tensor<3x8xf32>) -> tensor<3x8xbf16>
  %t = "vllm_ir.all_reduce"(%a) <{group_name = "tp"}> : (tensor<3x8xbf16>) -> tensor<3x8xbf16>
  %u = torch.call @aten.add.Tensor(%r, %t, alpha = 1) : (tensor<3x8xbf16>, tensor<3x8xbf16>) -> tensor<3x8xbf16>
  %g = torch.call @aten._to_copy.default(%u, dtype = f32, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (tensor<3x8xbf16>) -> tensor<3x8xf32>
  %d = vllm_ir.rms_norm %g : tensor<3x8xf32> weight %w : tensor<8xf32> {epsilon = 1.0e-06 : f64} -> tensor<3x8xf32>
  %c = torch.call @aten._to_copy.default(%d, dtype = bf16, layout = none, device = none, pin_memory = none, non_blocking = false, memory_format = none) : (tensor<3x8xf32>) -> tensor<3x8xbf16>
  vllm_ir.return (%c, %u) : tensor<3x8xbf16>, tensor<3x8xbf16>
}

// -----

// The larger pattern comes first. The new residual of the second is not used.
// CHECK: vllm_ir.fused = {all_reduce_rms_norm_static_quant = ["%q", "%p"]}
// CHECK-LABEL: @quantised(
// CHECK-NEXT: %q = "vllm_ir.all_reduce_rms_norm_static_fp8_quant"(%x, %w, %k) <{epsilon = 1.000000e-06 : f64, group_name = "tp"}>
// CHECK-NEXT: %p, %v = "vllm_ir.all_reduce_fused_add_rms_norm_static_fp8_quant"(%x, %r, %w, %k)
// CHECK-NEXT: vllm_ir.return (%q, %p)
vllm_ir.func functional @quantised(%x: tensor<3x8xf16>, %r: tensor<3x8xf16>, %w: tensor<8xf16>, %k: tensor<1xf32>) -> (tensor<3x8xf8E4M3FN>, tensor<3x8xf8E4M3FN>) {
  %s = "vllm_ir.all_reduce"(%x) <{group_name = "tp"}> : (tensor<3x8xf16>) -> tensor<3x8xf16>
  %a = vllm_ir.rms_norm %s : tensor<3x8xf16> weight %w : tensor<8xf16> {epsilon = 1.0e-06 : f64} -> tensor<3x8xf16>
  %q = "vllm_ir.static_scaled_fp8_quant"(%a, %k) : (tensor<3x8xf16>, tensor<1xf32>) -> tensor<3x8xf8E4M3FN>
  %sent = torch.call @_c10d_functional.all_reduce.default(%x, "sum", "tp") : (tensor<3x8xf16>) -> tensor<3x8xf16>
  %t = torch.call @_c10d_functional.wait_tensor.default(%sent) external : (tensor<3x8xf16>) -> tensor<3x8xf16>
  %p, %v = "vllm_ir.fused_add_rms_norm_static_fp8_quant"(%t, %r, %w, %k) <{epsilon = 1.0e-06 : f64}> : (tensor<3x8xf16>, tensor<3x8xf16>, tensor<8xf16>, tensor<1xf32>) -> (tensor<3x8xf8E4M3FN>, tensor<3x8xf16>)
  vllm_ir.return (%q, %p) : tensor<3x8xf8E4M3FN>, tensor<3x8xf8E4M3FN>
}

// -----

// The sum is needed by others.
// CHECK: vllm_ir.unfused = {{{.*}}all_reduce_rms_norm = ["%s: vllm_ir.all_reduce: %s is also used by %b"]
// CHECK-LABEL: @used(
// CHECK-NOT: vllm_ir.all_reduce_rms_norm
// CHECK: vllm_ir.return
vllm_ir.func functional @used(%x: tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<3x8xf32>) {
  %s = "vllm_ir.all_reduce"(%x) <{group_name = "tp"}> : (tensor<3x8xf32>) -> tensor<3x8xf32>
  %a = vllm_ir.rms_norm %s : tensor<3x8xf32> {epsilon = 1.0e-06 : f64} -> tensor<3x8xf32>
  %b = torch.call @aten.relu.default(%s) : (tensor<3x8xf32>) -> tensor<3x8xf32>
  vllm_ir.return (%a, %b) : tensor<3x8xf32>, tensor<3x8xf32>
}

// -----

// A collective of whatever group stands between the sum and the norm: the two would change places.
// CHECK: vllm_ir.unfused = {{{.*}}all_reduce_rms_norm = ["%o: vllm_ir.all_gather: it acts outside the program, among collectives that would change places"]
// CHECK-LABEL: @between(
// CHECK-NOT: vllm_ir.all_reduce_rms_norm
// CHECK: vllm_ir.return
vllm_ir.func functional @between(%x: tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<6x8xf32>) {
  %s = "vllm_ir.all_reduce"(%x) <{group_name = "tp"}> : (tensor<3x8xf32>) -> tensor<3x8xf32>
  %o = "vllm_ir.all_gather"(%x) <{dim = 0 : i64, world_size = 2 : i64, group_name = "dp"}> : (tensor<3x8xf32>) -> tensor<6x8xf32>
  %a = vllm_ir.rms_norm %s : tensor<3x8xf32> {epsilon = 1.0e-06 : f64} -> tensor<3x8xf32>
  vllm_ir.return (%a, %o) : tensor<3x8xf32>, tensor<6x8xf32>
}

// -----

// So do sums that are begun before one of them is waited for.
// CHECK: vllm_ir.unfused = {{{.*}}all_reduce_rms_norm = ["%two: @_c10d_functional.all_reduce.default: it acts outside {{[^"]*}}", "%s: @_c10d_functional.wait_tensor.default: it acts outside
// CHECK-LABEL: @begun(
// CHECK-NOT: vllm_ir.all_reduce_rms_norm
// CHECK: vllm_ir.return
vllm_ir.func functional @begun(%x: tensor<3x8xf32>) -> (tensor<3x8xf32>, tensor<3x8xf32>) {
  %one = torch.call @_c10d_functional.all_reduce.default(%x, "sum", "tp") : (tensor<3x8xf32>) -> tensor<3x8xf32>
  %two = torch.call @_c10d_functional.all_reduce.default(%x, "sum", "tp") : (tensor<3x8xf32>) -> tensor<3x8xf32>
  %s = torch.call @_c10d_functional.wait_tensor.default(%one) external : (tensor<3x8xf32>) -> tensor<3x8xf32>
  %a = vllm_ir.rms_norm %s : tensor<3x8xf32> {epsilon = 1.0e-06 : f64} -> tensor<3x8xf32>
  %t = torch.call @_c10d_functional.wait_tensor.default(%two) external : (tensor<3x8xf32>) -> tensor<3x8xf32>
  %b = vllm_ir.rms_norm %t : tensor<3x8xf32> {epsilon = 1.0e-06 : f64} -> tensor<3x8xf32>
  vllm_ir.return (%a, %b) : tensor<3x8xf32>, tensor<3x8xf32>
}

// -----

// Another reduction than the sum.
// CHECK: vllm_ir.unfused = {{{.*}}all_reduce_rms_norm = ["%sent: @_c10d_functional.all_reduce.default: argument 1 is \22avg\22, the pattern has \22sum\22"]
// CHECK-LABEL: @average(
// CHECK-NOT: vllm_ir.all_reduce_rms_norm
// CHECK: vllm_ir.return
vllm_ir.func functional @average(%x: tensor<3x8xf32>) -> tensor<3x8xf32> {
  %sent = torch.call @_c10d_functional.all_reduce.default(%x, "avg", "tp") : (tensor<3x8xf32>) -> tensor<3x8xf32>
  %s = torch.call @_c10d_functional.wait_tensor.default(%sent) external : (tensor<3x8xf32>) -> tensor<3x8xf32>
  %a = vllm_ir.rms_norm %s : tensor<3x8xf32> {epsilon = 1.0e-06 : f64} -> tensor<3x8xf32>
  vllm_ir.return %a : tensor<3x8xf32>
}
