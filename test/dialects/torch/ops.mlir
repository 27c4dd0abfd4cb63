// RUN: vllm-ir-opt %s | vllm-ir-opt | filecheck %s
// RUN: vllm-ir-opt %s --print-op-generic | vllm-ir-opt | filecheck %s
// RUN: vllm-ir-opt %s --print-op-generic | filecheck %s --check-prefix GENERIC

// CHECK-LABEL: vllm_ir.func @arguments
vllm_ir.func @arguments(%x: tensor<4xf32>, %y: tensor<4xf32>, %n: i64) -> () {
  // CHECK-NEXT: %a = torch.call @aten.add.Tensor(%x, %y, alpha = 1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  // GENERIC: %a = "torch.call"(%x, %y) <{callee = @aten.add.Tensor, args = [#torch.operand<0>, #torch.operand<1>], kwargs = {alpha = 1 : i64}}> : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %a = torch.call @aten.add.Tensor(%x, %y, alpha = 1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>

  // One operand, wherever it appears.
  // CHECK-NEXT: %b = torch.call @ns.op(%x, [%x, %n, none], ({"k" = %x, "l" = [()]})) : (tensor<4xf32>, i64) -> tensor<4xf32>
  %b = torch.call @ns.op(%x, [%x, %n, none], ({"k" = %x, "l" = [()]})) : (tensor<4xf32>, i64) -> tensor<4xf32>

  // One value as two operands, and operands in another order than they appear.
  // CHECK-NEXT: %c, %c_1 = torch.call @ns.op(%x, %x as 1) updates [0, 1] : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  %c:2 = torch.call @ns.op(%x, %x as 1) updates [0, 1] : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  // CHECK-NEXT: %d = torch.call @ns.op(%n as 1, %x as 0, %y) : (tensor<4xf32>, i64, tensor<4xf32>) -> tensor<4xf32>
  %d = torch.call @ns.op(%n as 1, %x as 0, %y) : (tensor<4xf32>, i64, tensor<4xf32>) -> tensor<4xf32>

  // CHECK-NEXT: torch.call @ns.f(true, false, none, 0, -1, 9223372036854775807, -9223372036854775808, 18446744073709551615)
  torch.call @ns.f(true, false, none, 0, -1, 9223372036854775807, -9223372036854775808, 18446744073709551615) : () -> ()
  // CHECK-NEXT: torch.call @ns.f(0.0, -0.0, 5.0e-324, 1.0e+300, 0.1234567890123456, 1.0e+16, inf, -inf, nan) : () -> ()
  torch.call @ns.f(0.0, -0.0, 5.0e-324, 1.0e300, 0.1234567890123456, 1.0e16, inf, -inf, nan) : () -> ()
  // CHECK-NEXT: torch.call @ns.f("", "a\22b\\", "\C3\A9\00\0A", {"\E2\82\AC" = 1})
  torch.call @ns.f("", "a\"b\\", "é\00\n", {"€" = 1}) : () -> ()
  // CHECK-NEXT: torch.call @ns.f(bf16, dtype = f32, i1 = i1, c = complex<f32>, device = #torch.device<"cuda:0">, layout = #torch.layout<"strided">, memory_format = #torch.memory_format<"channels_last">, z = #torch.complex<1.000000e+00 : f64, -0.000000e+00 : f64>, fn = @sub) : () -> ()
  torch.call @ns.f(bf16, dtype = f32, i1 = i1, c = complex<f32>, device = #torch.device<"cuda:0">, layout = #torch.layout<"strided">, memory_format = #torch.memory_format<"channels_last">, z = #torch.complex<1.0 : f64, -0.0 : f64>, fn = @sub) : () -> ()

  // CHECK-NEXT: torch.call @ns.f() random external attributes {note = "kept"} : () -> ()
  torch.call @ns.f() random external attributes {note = "kept"} : () -> ()
  // CHECK-NEXT: vllm_ir.return none
  vllm_ir.return none
}

// CHECK-LABEL: vllm_ir.func @effects
vllm_ir.func @effects(%x: !vllm_ir.buffer<4xf32> {vllm_ir.mutated}, %y: !vllm_ir.buffer<4xf32>) -> () {
  // CHECK-NEXT: %a, %n = torch.call @ns.op_(%x, %y) reads(%y) writes(%x) returns [0, -1] : (!vllm_ir.buffer<4xf32>, !vllm_ir.buffer<4xf32>) -> (!vllm_ir.buffer<4xf32>, tensor<4xf32>)
  // GENERIC: <{callee = @ns.op_, args = [#torch.operand<0>, #torch.operand<1>], reads = array<i64: 1>, writes = array<i64: 0>, returns = array<i64: 0, -1>}>
  %a, %n = torch.call @ns.op_(%x, %y) reads(%y) writes(%x) returns [0, -1] : (!vllm_ir.buffer<4xf32>, !vllm_ir.buffer<4xf32>) -> (!vllm_ir.buffer<4xf32>, tensor<4xf32>)
  // CHECK-NEXT: torch.call @ns.op_(%x, %x as 1) reads(%x, %x as 1) writes(%x as 1)
  torch.call @ns.op_(%x, %x as 1) reads(%x, %x as 1) writes(%x as 1) : (!vllm_ir.buffer<4xf32>, !vllm_ir.buffer<4xf32>) -> ()
  vllm_ir.return none
}

// CHECK-LABEL: vllm_ir.func @constant
vllm_ir.func @constant() -> (tensor<2xi1>) {
  // CHECK-NEXT: %c = torch.constant "0001" : tensor<2xi1>
  // GENERIC: %c = "torch.constant"() <{data = "0001"}> : () -> tensor<2xi1>
  %c = torch.constant "0001" : tensor<2xi1>
  // CHECK-NEXT: %e = torch.constant "" : tensor<0x3xcomplex<f64>>
  %e = torch.constant "" : tensor<0x3xcomplex<f64>>
  vllm_ir.return %c : tensor<2xi1>
}
