// RUN: vllm-ir-opt %s -p 'fuse{only=attention_static_quant explain=true}' --split-input-file | filecheck %s

// CHECK: vllm_ir.fused = {attention_static_quant = ["%c"]}
// CHECK-LABEL: @static(
// CHECK-NEXT: %c = "vllm_ir.paged_attention_static_fp8_quant"(%query, %kc, %vc, %table, %lengths, %starts, %s) <{scale = 1.250000e-01 : f64}>
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @static(%query: tensor<3x4x16xbf16>, %kc: tensor<4x4x2x16xbf16>, %vc: tensor<4x4x2x16xbf16>, %table: tensor<2x2xi64>, %lengths: tensor<2xi64>, %starts: tensor<3xi64>, %s: tensor<1xf32>) -> tensor<3x64xf8E4M3FN> {
  %a = "vllm_ir.paged_attention"(%query, %kc, %vc, %table, %lengths, %starts) <{scale = 1.250000e-01 : f64}> : (tensor<3x4x16xbf16>, tensor<4x4x2x16xbf16>, tensor<4x4x2x16xbf16>, tensor<2x2xi64>, tensor<2xi64>, tensor<3xi64>) -> tensor<3x4x16xbf16>
  %b = torch.call @aten.view.default(%a, [-1, 64]) : (tensor<3x4x16xbf16>) -> tensor<3x64xbf16>
  %c = "vllm_ir.static_scaled_fp8_quant"(%b, %s) : (tensor<3x64xbf16>, tensor<1xf32>) -> tensor<3x64xf8E4M3FN>
  vllm_ir.return %c : tensor<3x64xf8E4M3FN>
}

// -----

// The result is read as well.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}attention_static_quant = [{{.*}}"%a: vllm_ir.paged_attention: %a is also used by %d"
// CHECK-LABEL: @used(
// CHECK-NOT: attention_static
// CHECK: vllm_ir.return
vllm_ir.func functional @used(%arg0: tensor<3x4x16xbf16>, %arg1: tensor<4x4x2x16xbf16>, %arg2: tensor<4x4x2x16xbf16>, %arg3: tensor<2x2xi64>, %arg4: tensor<2xi64>, %arg5: tensor<3xi64>, %arg6: tensor<1xf32>) -> (tensor<3x64xf8E4M3FN>, tensor<3x4x16xbf16>) {
  %a = "vllm_ir.paged_attention"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5) <{scale = 1.250000e-01 : f64}> : (tensor<3x4x16xbf16>, tensor<4x4x2x16xbf16>, tensor<4x4x2x16xbf16>, tensor<2x2xi64>, tensor<2xi64>, tensor<3xi64>) -> tensor<3x4x16xbf16>
  %b = torch.call @aten.view.default(%a, [-1, 64]) : (tensor<3x4x16xbf16>) -> tensor<3x64xbf16>
  %c = "vllm_ir.static_scaled_fp8_quant"(%b, %arg6) : (tensor<3x64xbf16>, tensor<1xf32>) -> tensor<3x64xf8E4M3FN>
  %d = torch.call @aten.mul.Tensor(%a, 2) : (tensor<3x4x16xbf16>) -> tensor<3x4x16xbf16>
  vllm_ir.return (%c, %d) : tensor<3x64xf8E4M3FN>, tensor<3x4x16xbf16>
}

// -----

// The result is read in its other shape.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}attention_static_quant = [{{.*}}"%b: @aten.view.default: %b is also used by %d"
// CHECK-LABEL: @view_used(
// CHECK-NOT: attention_static
// CHECK: vllm_ir.return
vllm_ir.func functional @view_used(%arg0: tensor<3x4x16xbf16>, %arg1: tensor<4x4x2x16xbf16>, %arg2: tensor<4x4x2x16xbf16>, %arg3: tensor<2x2xi64>, %arg4: tensor<2xi64>, %arg5: tensor<3xi64>, %arg6: tensor<1xf32>) -> (tensor<3x64xf8E4M3FN>, tensor<3x64xbf16>) {
  %a = "vllm_ir.paged_attention"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5) <{scale = 1.250000e-01 : f64}> : (tensor<3x4x16xbf16>, tensor<4x4x2x16xbf16>, tensor<4x4x2x16xbf16>, tensor<2x2xi64>, tensor<2xi64>, tensor<3xi64>) -> tensor<3x4x16xbf16>
  %b = torch.call @aten.view.default(%a, [-1, 64]) : (tensor<3x4x16xbf16>) -> tensor<3x64xbf16>
  %c = "vllm_ir.static_scaled_fp8_quant"(%b, %arg6) : (tensor<3x64xbf16>, tensor<1xf32>) -> tensor<3x64xf8E4M3FN>
  %d = torch.call @aten.mul.Tensor(%b, 2) : (tensor<3x64xbf16>) -> tensor<3x64xbf16>
  vllm_ir.return (%c, %d) : tensor<3x64xf8E4M3FN>, tensor<3x64xbf16>
}

// -----

// The rows are not those of tokens.
// CHECK-NOT: vllm_ir.fused =
// CHECK: vllm_ir.unfused = {{.*}}attention_static_quant = [{{.*}}"%c: vllm_ir.static_scaled_fp8_quant: result 0 is tensor<6x32xf8E4M3FN> before, tensor<3x64xf8E4M3FN> after"
// CHECK-LABEL: @other_rows(
// CHECK-NOT: attention_static
// CHECK: vllm_ir.return
vllm_ir.func functional @other_rows(%arg0: tensor<3x4x16xbf16>, %arg1: tensor<4x4x2x16xbf16>, %arg2: tensor<4x4x2x16xbf16>, %arg3: tensor<2x2xi64>, %arg4: tensor<2xi64>, %arg5: tensor<3xi64>, %arg6: tensor<1xf32>) -> tensor<6x32xf8E4M3FN> {
  %a = "vllm_ir.paged_attention"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5) <{scale = 1.250000e-01 : f64}> : (tensor<3x4x16xbf16>, tensor<4x4x2x16xbf16>, tensor<4x4x2x16xbf16>, tensor<2x2xi64>, tensor<2xi64>, tensor<3xi64>) -> tensor<3x4x16xbf16>
  %b = torch.call @aten.view.default(%a, [-1, 32]) : (tensor<3x4x16xbf16>) -> tensor<6x32xbf16>
  %c = "vllm_ir.static_scaled_fp8_quant"(%b, %arg6) : (tensor<6x32xbf16>, tensor<1xf32>) -> tensor<6x32xf8E4M3FN>
  vllm_ir.return %c : tensor<6x32xf8E4M3FN>
}

// -----

// There is no fused op for int8.
// CHECK-NOT: vllm_ir.fused =
// CHECK-LABEL: @int8(
// CHECK-NOT: attention_static
// CHECK: vllm_ir.return
vllm_ir.func functional @int8(%arg0: tensor<3x4x16xbf16>, %arg1: tensor<4x4x2x16xbf16>, %arg2: tensor<4x4x2x16xbf16>, %arg3: tensor<2x2xi64>, %arg4: tensor<2xi64>, %arg5: tensor<3xi64>, %arg6: tensor<1xf32>) -> tensor<3x64xi8> {
  %a = "vllm_ir.paged_attention"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5) <{scale = 1.250000e-01 : f64}> : (tensor<3x4x16xbf16>, tensor<4x4x2x16xbf16>, tensor<4x4x2x16xbf16>, tensor<2x2xi64>, tensor<2xi64>, tensor<3xi64>) -> tensor<3x4x16xbf16>
  %b = torch.call @aten.view.default(%a, [-1, 64]) : (tensor<3x4x16xbf16>) -> tensor<3x64xbf16>
  %c = "vllm_ir.static_scaled_int8_quant"(%b, %arg6) : (tensor<3x64xbf16>, tensor<1xf32>) -> tensor<3x64xi8>
  vllm_ir.return %c : tensor<3x64xi8>
}

// -----

// Nor is there one for scales of rows.
// CHECK-NOT: vllm_ir.fused =
// CHECK-LABEL: @dynamic(
// CHECK-NOT: attention_static
// CHECK: vllm_ir.return
vllm_ir.func functional @dynamic(%arg0: tensor<3x4x16xbf16>, %arg1: tensor<4x4x2x16xbf16>, %arg2: tensor<4x4x2x16xbf16>, %arg3: tensor<2x2xi64>, %arg4: tensor<2xi64>, %arg5: tensor<3xi64>, %arg6: tensor<1xf32>) -> (tensor<3x64xf8E4M3FN>, tensor<3x1xf32>) {
  %a = "vllm_ir.paged_attention"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5) <{scale = 1.250000e-01 : f64}> : (tensor<3x4x16xbf16>, tensor<4x4x2x16xbf16>, tensor<4x4x2x16xbf16>, tensor<2x2xi64>, tensor<2xi64>, tensor<3xi64>) -> tensor<3x4x16xbf16>
  %b = torch.call @aten.view.default(%a, [-1, 64]) : (tensor<3x4x16xbf16>) -> tensor<3x64xbf16>
  %c, %d = "vllm_ir.dynamic_per_token_scaled_fp8_quant"(%b) : (tensor<3x64xbf16>) -> (tensor<3x64xf8E4M3FN>, tensor<3x1xf32>)
  vllm_ir.return (%c, %d) : tensor<3x64xf8E4M3FN>, tensor<3x1xf32>
}

// -----

// A window, and soft caps, go along.
// CHECK: vllm_ir.fused = {attention_static_quant = ["%c"]}
// CHECK-LABEL: @window(
// CHECK-NEXT: %c = "vllm_ir.paged_attention_static_fp8_quant"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5, %arg6) <{scale = 1.250000e-01 : f64, sliding_window = 4 : i64, soft_cap = 3.000000e+01 : f64}>
// CHECK-NEXT: vllm_ir.return
vllm_ir.func functional @window(%arg0: tensor<3x4x16xf32>, %arg1: tensor<4x4x2x16xf32>, %arg2: tensor<4x4x2x16xf32>, %arg3: tensor<2x2xi64>, %arg4: tensor<2xi64>, %arg5: tensor<3xi64>, %arg6: tensor<1xf32>) -> tensor<3x64xf8E4M3FN> {
  %a = "vllm_ir.paged_attention"(%arg0, %arg1, %arg2, %arg3, %arg4, %arg5) <{scale = 1.250000e-01 : f64, sliding_window = 4 : i64, soft_cap = 3.000000e+01 : f64}> : (tensor<3x4x16xf32>, tensor<4x4x2x16xf32>, tensor<4x4x2x16xf32>, tensor<2x2xi64>, tensor<2xi64>, tensor<3xi64>) -> tensor<3x4x16xf32>
  %b = torch.call @aten.view.default(%a, [-1, 64]) : (tensor<3x4x16xf32>) -> tensor<3x64xf32>
  %c = "vllm_ir.static_scaled_fp8_quant"(%b, %arg6) : (tensor<3x64xf32>, tensor<1xf32>) -> tensor<3x64xf8E4M3FN>
  vllm_ir.return %c : tensor<3x64xf8E4M3FN>
}
