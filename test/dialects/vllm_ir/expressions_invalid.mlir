// RUN: vllm-ir-opt %s --verify-diagnostics --parsing-diagnostics --split-input-file | filecheck %s

// CHECK: size 's0.real' is not an arithmetic expression
"test.op"() {t = !vllm_ir.buffer<?xf32, sizes = ["s0.real"]>} : () -> ()

// -----

// CHECK: size 's0(a, *b)' is not an arithmetic expression
"test.op"() {t = !vllm_ir.buffer<?xf32, sizes = ["s0(a, *b)"]>} : () -> ()

// -----

// CHECK: size 's0 +' is not an arithmetic expression
"test.op"() {t = !vllm_ir.buffer<4xf32, offset = "s0 +">} : () -> ()

// -----

// CHECK: size '2**(s0 + 1)' has a power that is not a number up to 64
"test.op"() {t = !vllm_ir.buffer<4xf32, strides = ["2**(s0 + 1)"]>} : () -> ()

// -----

// CHECK: size '9**65' has a power that is not a number up to 64
vllm_ir.func @main(%n: i64 {vllm_ir.symbol = "9**65"}) {
  vllm_ir.return none
}

// -----

// CHECK: 9223372036854775808 does not fit in 64 bits
"test.op"() {t = !vllm_ir.buffer<4xf32, strides = [9223372036854775808]>} : () -> ()

// -----

// CHECK: its last element is number 1801439850948198399 of the storage, more than 2**63 bytes behind the first
"test.op"() {t = !vllm_ir.buffer<1801439850948198400xf32>} : () -> ()
