// RUN: vllm-ir-opt %s --verify-diagnostics --parsing-diagnostics --split-input-file | filecheck %s

%x = "test.op"() : () -> tensor<4xf32>
// CHECK: Operation does not verify: %x is an operand but not among the arguments
"torch.call"(%x) <{callee = @ns.op, args = []}> : (tensor<4xf32>) -> ()

// -----

%0 = "test.op"() : () -> tensor<4xf32>
// CHECK: Operation does not verify: operand 0 is an operand but not among the arguments
"torch.call"(%0) <{callee = @ns.op, args = []}> : (tensor<4xf32>) -> ()

// -----

// CHECK: Operation does not verify: an argument refers to operand 3 of 0
"torch.call"() <{callee = @ns.op, args = [#torch.operand<3>]}> : () -> ()

// -----

// CHECK: Operation does not verify: argument 1 : i32 is not a value that PyTorch has
"torch.call"() <{callee = @ns.op, args = [1 : i32]}> : () -> ()

// -----

// CHECK: Operation does not verify: argument 1.000000e+00 : f32 is not a value that PyTorch has
"torch.call"() <{callee = @ns.op, args = [1.0 : f32]}> : () -> ()

// -----

// CHECK: Operation does not verify: callee @a::@b is a nested reference, the name of an operator is one symbol
"torch.call"() <{callee = @a::@b, args = []}> : () -> ()

// -----

// CHECK: Operation does not verify: keyword 'a b' is not an identifier
"torch.call"() <{callee = @ns.op, args = [], kwargs = {"a b" = 1}}> : () -> ()

// -----

%x = "test.op"() : () -> tensor<4xf32>
// CHECK: Operation does not verify: reads names %x of type tensor<4xf32>, which is not a buffer of this call
torch.call @ns.op(%x) reads(%x) : (tensor<4xf32>) -> ()

// -----

// CHECK: Operation does not verify: writes names operand 2, which is not a buffer of this call
"torch.call"() <{callee = @ns.op, args = [], writes = array<i64: 2>}> : () -> ()

// -----

%b = "test.op"() : () -> !vllm_ir.buffer<4xf32>
// CHECK: Operation does not verify: writes names %b twice
torch.call @ns.op(%b) writes(%b, %b) : (!vllm_ir.buffer<4xf32>) -> ()

// -----

%b = "test.op"() : () -> !vllm_ir.buffer<4xf32>
// CHECK: Operation does not verify: updates names %b of type !vllm_ir.buffer<4xf32>, which is not a tensor of this call
%y = torch.call @ns.op(%b) reads(%b) updates [0] : (!vllm_ir.buffer<4xf32>) -> tensor<4xf32>

// -----

%x = "test.op"() : () -> tensor<4xf32>
// CHECK: Operation does not verify: updates names %x twice
%y, %z = torch.call @ns.op(%x) updates [0, 0] : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)

// -----

%x = "test.op"() : () -> tensor<4xf32>
// CHECK: Operation does not verify: 1 updates need as many results, the call has 0
torch.call @ns.op(%x) updates [0] : (tensor<4xf32>) -> ()

// -----

%x = "test.op"() : () -> tensor<4xf32>
// CHECK: Operation does not verify: the new value of %x has type tensor<4xf16>, the old one tensor<4xf32>
%y = torch.call @ns.op(%x) updates [0] : (tensor<4xf32>) -> tensor<4xf16>

// -----

%b = "test.op"() : () -> !vllm_ir.buffer<4xf32>
// CHECK: Operation does not verify: returns has 2 entries for 1 results
%y = torch.call @ns.op(%b) writes(%b) returns [0, -1] : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<4xf32>

// -----

%b = "test.op"() : () -> !vllm_ir.buffer<4xf32>
// CHECK: Operation does not verify: %y of type !vllm_ir.buffer<4xf32> is a buffer but returned as that of no operand
%y = torch.call @ns.op(%b) writes(%b) : (!vllm_ir.buffer<4xf32>) -> !vllm_ir.buffer<4xf32>

// -----

%x = "test.op"() : () -> tensor<4xf32>
// CHECK: Operation does not verify: %y of type !vllm_ir.buffer<4xf32> is a buffer but returned as that of %x of type tensor<4xf32>, which is not a buffer
%y = torch.call @ns.op(%x) returns [0] : (tensor<4xf32>) -> !vllm_ir.buffer<4xf32>

// -----

%b = "test.op"() : () -> !vllm_ir.buffer<4xf32>
// CHECK: Operation does not verify: %y of type tensor<4xf32> is no buffer but returned as that of %b
%y = torch.call @ns.op(%b) writes(%b) returns [0] : (!vllm_ir.buffer<4xf32>) -> tensor<4xf32>

// -----

// CHECK: ops_invalid.mlir:{{[0-9]+}}:26
// CHECK: a positional argument follows a keyword argument
torch.call @ns.op(a = 1, 2) : () -> ()

// -----

// CHECK: keyword argument 'a' is given twice
torch.call @ns.op(a = 1, a = 2) : () -> ()

// -----

// CHECK: key 'a' is given twice
torch.call @ns.op({"a" = 1, "a" = 2}) : () -> ()

// -----

// CHECK: dictionary key expected, a string
torch.call @ns.op({a = 1}) : () -> ()

// -----

// CHECK: integer 18446744073709551616 does not fit in 64 bits
torch.call @ns.op(18446744073709551616) : () -> ()

// -----

// CHECK: integer -9223372036854775809 does not fit in 64 bits
torch.call @ns.op(-9223372036854775809) : () -> ()

// -----

// CHECK: number expected behind '-'
torch.call @ns.op(-true) : () -> ()

// -----

// CHECK: string is not valid UTF-8
torch.call @ns.op("\FF") : () -> ()

// -----

%x, %y = "test.op"() : () -> (i64, i64)
// CHECK: operand 0 is %y here and %x before
torch.call @ns.op(%x, %y as 0) : (i64) -> ()

// -----

%x, %y = "test.op"() : () -> (i64, i64)
// CHECK: operands are numbered [0, 5], with gaps
torch.call @ns.op(%x, %y as 5) : (i64, i64) -> ()

// -----

// CHECK: -2 is not the number of an operand
torch.call @ns.op() returns [-2] : () -> ()

// -----

// CHECK: Attribute dictionary entry 'callee' is already passed through the operation custom assembly format.
torch.call @ns.op() attributes {callee = @other} : () -> ()

// -----

// CHECK: Operation does not verify: data '0' is not a string of lower-case hexadecimal bytes
%c = torch.constant "0" : tensor<1xi8>

// -----

// CHECK: Operation does not verify: data has 3 bytes, tensor<2xi16> needs 4
%c = torch.constant "000000" : tensor<2xi16>

// -----

// CHECK: Operation does not verify: the constant has the dynamic shape ?x2
%c = torch.constant "00" : tensor<?x2xi8>

// -----

// CHECK: string is not valid UTF-8
torch.call @ns.op("\FF\FE") : () -> ()

// -----

// CHECK: string is not valid UTF-8
torch.call @ns.op({"\FF" = 1}) : () -> ()
