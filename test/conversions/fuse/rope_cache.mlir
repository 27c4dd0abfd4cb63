// RUN: vllm-ir-opt %s -p 'fuse{only=rope_cache,mla_rope_cache explain=true}' --split-input-file | filecheck %s

// CHECK: vllm_ir.fused = {rope_cache = ["%e"]}
// CHECK-LABEL: @paged(
// CHECK-NEXT: %a, %b, %e, %f = "vllm_ir.rope_and_cache"(%positions, %q, %k, %v, %kc, %vc, %slots, %table) <{head_size = 16 : i64, is_neox = true}>
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @paged(%positions: tensor<5xi64>, %q: tensor<5x64xbf16>, %k: tensor<5x32xbf16>, %v: tensor<5x32xbf16>, %kc: tensor<3x4x2x16xbf16>, %vc: tensor<3x4x2x16xbf16>, %slots: tensor<5xi64>, %table: tensor<32x16xbf16>) -> (tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>) {
  %a, %b = vllm_ir.rotary_embedding %positions, %q, %k, %table {head_size = 16 : i64, is_neox = true} : tensor<5xi64>, tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<32x16xbf16> -> tensor<5x64xbf16>, tensor<5x32xbf16>
  %c = torch.call @aten.view.default(%b, [-1, 2, 16]) : (tensor<5x32xbf16>) -> tensor<5x2x16xbf16>
  %d = torch.call @aten.view.default(%v, [-1, 2, 16]) : (tensor<5x32xbf16>) -> tensor<5x2x16xbf16>
  %e, %f = "vllm_ir.reshape_and_cache"(%c, %d, %kc, %vc, %slots) : (tensor<5x2x16xbf16>, tensor<5x2x16xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>, tensor<5xi64>) -> (tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>)
  vllm_ir.return (%a, %b, %e, %f) : tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>
}

// -----

// Nobody reads the keys, but for the cache.
// CHECK: vllm_ir.fused = {rope_cache = ["%e"]}
// CHECK-LABEL: @not_read(
// CHECK-NEXT: %a, %b, %e, %f = "vllm_ir.rope_and_cache"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6, %arg7) <{head_size = 16 : i64, is_neox = true}>
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @not_read(%arg0: tensor<5xi64>, %arg1: tensor<5x64xf32>, %arg2: tensor<5x32xf32>, %arg3: tensor<5x32xf32>, %arg4: tensor<3x4x2x16xf32>, %arg5: tensor<3x4x2x16xf32>, %arg6: tensor<5xi64>, %arg7: tensor<32x16xf32>) -> (tensor<5x64xf32>, tensor<3x4x2x16xf32>, tensor<3x4x2x16xf32>) {
  %a, %b = vllm_ir.rotary_embedding %arg0, %arg1, %arg2, %arg7 {head_size = 16 : i64, is_neox = true} : tensor<5xi64>, tensor<5x64xf32>, tensor<5x32xf32>, tensor<32x16xf32> -> tensor<5x64xf32>, tensor<5x32xf32>
  %c = torch.call @aten.view.default(%b, [-1, 2, 16]) : (tensor<5x32xf32>) -> tensor<5x2x16xf32>
  %d = torch.call @aten.view.default(%arg3, [-1, 2, 16]) : (tensor<5x32xf32>) -> tensor<5x2x16xf32>
  %e, %f = "vllm_ir.reshape_and_cache"(%c, %d, %arg4, %arg5, %arg6) : (tensor<5x2x16xf32>, tensor<5x2x16xf32>, tensor<3x4x2x16xf32>, tensor<3x4x2x16xf32>, tensor<5xi64>) -> (tensor<3x4x2x16xf32>, tensor<3x4x2x16xf32>)
  vllm_ir.return (%a, %e, %f) : tensor<5x64xf32>, tensor<3x4x2x16xf32>, tensor<3x4x2x16xf32>
}

// -----

// The keys that go to the cache are those before the rotation.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}rope_cache = [{{.*}}"%c: @aten.view.default: %k is an argument, vllm_ir.rotary_embedding is expected"
// CHECK-LABEL: @not_rotated(
// CHECK-NOT: rope_and_cache
// CHECK: vllm_ir.return
vllm_ir.func functional @not_rotated(%positions: tensor<5xi64>, %q: tensor<5x64xbf16>, %k: tensor<5x32xbf16>, %v: tensor<5x32xbf16>, %kc: tensor<3x4x2x16xbf16>, %vc: tensor<3x4x2x16xbf16>, %slots: tensor<5xi64>, %table: tensor<32x16xbf16>) -> (tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>) {
  %a, %b = vllm_ir.rotary_embedding %positions, %q, %k, %table {head_size = 16 : i64, is_neox = true} : tensor<5xi64>, tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<32x16xbf16> -> tensor<5x64xbf16>, tensor<5x32xbf16>
  %c = torch.call @aten.view.default(%k, [-1, 2, 16]) : (tensor<5x32xbf16>) -> tensor<5x2x16xbf16>
  %d = torch.call @aten.view.default(%v, [-1, 2, 16]) : (tensor<5x32xbf16>) -> tensor<5x2x16xbf16>
  %e, %f = "vllm_ir.reshape_and_cache"(%c, %d, %kc, %vc, %slots) : (tensor<5x2x16xbf16>, tensor<5x2x16xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>, tensor<5xi64>) -> (tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>)
  vllm_ir.return (%a, %b, %e, %f) : tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>
}

// -----

// Something stands between them.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}rope_cache = [{{.*}}"%d: @aten.view.default: %c is another result than expected"
// CHECK-LABEL: @scaled(
// CHECK-NOT: rope_and_cache
// CHECK: vllm_ir.return
vllm_ir.func functional @scaled(%positions: tensor<5xi64>, %q: tensor<5x64xbf16>, %k: tensor<5x32xbf16>, %v: tensor<5x32xbf16>, %kc: tensor<3x4x2x16xbf16>, %vc: tensor<3x4x2x16xbf16>, %slots: tensor<5xi64>, %table: tensor<32x16xbf16>) -> (tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>) {
  %a, %b = vllm_ir.rotary_embedding %positions, %q, %k, %table {head_size = 16 : i64, is_neox = true} : tensor<5xi64>, tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<32x16xbf16> -> tensor<5x64xbf16>, tensor<5x32xbf16>
  %c = torch.call @aten.mul.Tensor(%b, 2) : (tensor<5x32xbf16>) -> tensor<5x32xbf16>
  %d = torch.call @aten.view.default(%c, [-1, 2, 16]) : (tensor<5x32xbf16>) -> tensor<5x2x16xbf16>
  %e = torch.call @aten.view.default(%v, [-1, 2, 16]) : (tensor<5x32xbf16>) -> tensor<5x2x16xbf16>
  %f, %g = "vllm_ir.reshape_and_cache"(%d, %e, %kc, %vc, %slots) : (tensor<5x2x16xbf16>, tensor<5x2x16xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>, tensor<5xi64>) -> (tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>)
  vllm_ir.return (%a, %b, %f, %g) : tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>
}

// -----

// Rotated keys go to the cache of values.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}rope_cache = [{{.*}}"%c: @aten.view.default: %v is an argument, vllm_ir.rotary_embedding is expected"
// CHECK-LABEL: @swapped(
// CHECK-NOT: rope_and_cache
// CHECK: vllm_ir.return
vllm_ir.func functional @swapped(%positions: tensor<5xi64>, %q: tensor<5x64xbf16>, %k: tensor<5x32xbf16>, %v: tensor<5x32xbf16>, %kc: tensor<3x4x2x16xbf16>, %vc: tensor<3x4x2x16xbf16>, %slots: tensor<5xi64>, %table: tensor<32x16xbf16>) -> (tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>) {
  %a, %b = vllm_ir.rotary_embedding %positions, %q, %k, %table {head_size = 16 : i64, is_neox = true} : tensor<5xi64>, tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<32x16xbf16> -> tensor<5x64xbf16>, tensor<5x32xbf16>
  %c = torch.call @aten.view.default(%v, [-1, 2, 16]) : (tensor<5x32xbf16>) -> tensor<5x2x16xbf16>
  %d = torch.call @aten.view.default(%b, [-1, 2, 16]) : (tensor<5x32xbf16>) -> tensor<5x2x16xbf16>
  %e, %f = "vllm_ir.reshape_and_cache"(%c, %d, %kc, %vc, %slots) : (tensor<5x2x16xbf16>, tensor<5x2x16xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>, tensor<5xi64>) -> (tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>)
  vllm_ir.return (%a, %b, %e, %f) : tensor<5x64xbf16>, tensor<5x32xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>
}

// -----

// Rotated queries go to the cache of keys.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}rope_cache = [{{.*}}"%c: @aten.view.default: %a is another result than expected"
// CHECK-LABEL: @queries(
// CHECK-NOT: rope_and_cache
// CHECK: vllm_ir.return
vllm_ir.func functional @queries(%positions: tensor<5xi64>, %q: tensor<5x32xbf16>, %k: tensor<5x32xbf16>, %v: tensor<5x32xbf16>, %kc: tensor<3x4x2x16xbf16>, %vc: tensor<3x4x2x16xbf16>, %slots: tensor<5xi64>, %table: tensor<32x16xbf16>) -> (tensor<5x32xbf16>, tensor<5x32xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>) {
  %a, %b = vllm_ir.rotary_embedding %positions, %q, %k, %table {head_size = 16 : i64, is_neox = true} : tensor<5xi64>, tensor<5x32xbf16>, tensor<5x32xbf16>, tensor<32x16xbf16> -> tensor<5x32xbf16>, tensor<5x32xbf16>
  %c = torch.call @aten.view.default(%a, [-1, 2, 16]) : (tensor<5x32xbf16>) -> tensor<5x2x16xbf16>
  %d = torch.call @aten.view.default(%v, [-1, 2, 16]) : (tensor<5x32xbf16>) -> tensor<5x2x16xbf16>
  %e, %f = "vllm_ir.reshape_and_cache"(%c, %d, %kc, %vc, %slots) : (tensor<5x2x16xbf16>, tensor<5x2x16xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>, tensor<5xi64>) -> (tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>)
  vllm_ir.return (%a, %b, %e, %f) : tensor<5x32xbf16>, tensor<5x32xbf16>, tensor<3x4x2x16xbf16>, tensor<3x4x2x16xbf16>
}

// -----

// CHECK: vllm_ir.fused = {mla_rope_cache = ["%e"]}
// CHECK-LABEL: @latent(
// CHECK-NEXT: %b, %d, %e = "vllm_ir.mla_rope_and_cache"(%positions, %q_pe, %k_pe, %kv_c, %cache, %slots, %table) <{is_neox = false}>
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @latent(%positions: tensor<5xi64>, %q_pe: tensor<5x4x16xbf16>, %k_pe: tensor<5x16xbf16>, %kv_c: tensor<5x24xbf16>, %cache: tensor<3x4x40xbf16>, %slots: tensor<5xi64>, %table: tensor<32x16xbf16>) -> (tensor<5x4x16xbf16>, tensor<3x4x40xbf16>) {
  %a = torch.call @aten.unsqueeze.default(%k_pe, 1) : (tensor<5x16xbf16>) -> tensor<5x1x16xbf16>
  %b, %c = vllm_ir.rotary_embedding %positions, %q_pe, %a, %table {head_size = 16 : i64, is_neox = false} : tensor<5xi64>, tensor<5x4x16xbf16>, tensor<5x1x16xbf16>, tensor<32x16xbf16> -> tensor<5x4x16xbf16>, tensor<5x1x16xbf16>
  %d = torch.call @aten.squeeze.dim(%c, 1) : (tensor<5x1x16xbf16>) -> tensor<5x16xbf16>
  %e = "vllm_ir.concat_and_cache_mla"(%kv_c, %d, %cache, %slots) : (tensor<5x24xbf16>, tensor<5x16xbf16>, tensor<3x4x40xbf16>, tensor<5xi64>) -> tensor<3x4x40xbf16>
  vllm_ir.return (%b, %e) : tensor<5x4x16xbf16>, tensor<3x4x40xbf16>
}

// -----

// The rotated key is read in its other shape.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}mla_rope_cache = [{{.*}}"%b: vllm_ir.rotary_embedding: %c is also used by %d"
// CHECK-LABEL: @latent_used(
// CHECK-NOT: rope_and_cache
// CHECK: vllm_ir.return
vllm_ir.func functional @latent_used(%positions: tensor<5xi64>, %q_pe: tensor<5x4x16xbf16>, %k_pe: tensor<5x16xbf16>, %kv_c: tensor<5x24xbf16>, %cache: tensor<3x4x40xbf16>, %slots: tensor<5xi64>, %table: tensor<32x16xbf16>) -> (tensor<5x4x16xbf16>, tensor<5x1x16xbf16>, tensor<3x4x40xbf16>) {
  %a = torch.call @aten.unsqueeze.default(%k_pe, 1) : (tensor<5x16xbf16>) -> tensor<5x1x16xbf16>
  %b, %c = vllm_ir.rotary_embedding %positions, %q_pe, %a, %table {head_size = 16 : i64, is_neox = true} : tensor<5xi64>, tensor<5x4x16xbf16>, tensor<5x1x16xbf16>, tensor<32x16xbf16> -> tensor<5x4x16xbf16>, tensor<5x1x16xbf16>
  %d = torch.call @aten.mul.Tensor(%c, 1) : (tensor<5x1x16xbf16>) -> tensor<5x1x16xbf16>
  %e = torch.call @aten.squeeze.dim(%c, 1) : (tensor<5x1x16xbf16>) -> tensor<5x16xbf16>
  %f = "vllm_ir.concat_and_cache_mla"(%kv_c, %e, %cache, %slots) : (tensor<5x24xbf16>, tensor<5x16xbf16>, tensor<3x4x40xbf16>, tensor<5xi64>) -> tensor<3x4x40xbf16>
  vllm_ir.return (%b, %d, %f) : tensor<5x4x16xbf16>, tensor<5x1x16xbf16>, tensor<3x4x40xbf16>
}

// -----

// Another spelling of the same, which stays.
// CHECK-NOT: vllm_ir.fused =
// CHECK-LABEL: @latent_selected(
// CHECK-NOT: rope_and_cache
// CHECK: vllm_ir.return
vllm_ir.func functional @latent_selected(%positions: tensor<5xi64>, %q_pe: tensor<5x4x16xbf16>, %k_pe: tensor<5x16xbf16>, %kv_c: tensor<5x24xbf16>, %cache: tensor<3x4x40xbf16>, %slots: tensor<5xi64>, %table: tensor<32x16xbf16>) -> (tensor<5x4x16xbf16>, tensor<3x4x40xbf16>) {
  %a = torch.call @aten.unsqueeze.default(%k_pe, 1) : (tensor<5x16xbf16>) -> tensor<5x1x16xbf16>
  %b, %c = vllm_ir.rotary_embedding %positions, %q_pe, %a, %table {head_size = 16 : i64, is_neox = false} : tensor<5xi64>, tensor<5x4x16xbf16>, tensor<5x1x16xbf16>, tensor<32x16xbf16> -> tensor<5x4x16xbf16>, tensor<5x1x16xbf16>
  %d = torch.call @aten.select.int(%c, 1, 0) : (tensor<5x1x16xbf16>) -> tensor<5x16xbf16>
  %e = "vllm_ir.concat_and_cache_mla"(%kv_c, %d, %cache, %slots) : (tensor<5x24xbf16>, tensor<5x16xbf16>, tensor<3x4x40xbf16>, tensor<5xi64>) -> tensor<3x4x40xbf16>
  vllm_ir.return (%b, %e) : tensor<5x4x16xbf16>, tensor<3x4x40xbf16>
}
