// RUN: vllm-ir-opt %s | vllm-ir-opt | filecheck %s
// RUN: vllm-ir-opt %s --print-op-generic | vllm-ir-opt --print-op-generic | filecheck %s

// CHECK: "test.op"() {dtypes = [tensor<2xi1>, tensor<2xi8>, tensor<2xi16>, tensor<2xi32>, tensor<2xi64>, tensor<2xui8>, tensor<2xui16>, tensor<2xui32>, tensor<2xui64>]}
"test.op"() {dtypes = [tensor<2xi1>, tensor<2xi8>, tensor<2xi16>, tensor<2xi32>, tensor<2xi64>, tensor<2xui8>, tensor<2xui16>, tensor<2xui32>, tensor<2xui64>]} : () -> ()
// CHECK: "test.op"() {dtypes = [tensor<2xf16>, tensor<2xbf16>, tensor<2xf32>, tensor<2xf64>, tensor<2xf8E4M3FN>, tensor<2xf8E5M2>, tensor<2xf8E4M3FNUZ>, tensor<2xf8E5M2FNUZ>, tensor<2xf8E8M0FNU>]}
"test.op"() {dtypes = [tensor<2xf16>, tensor<2xbf16>, tensor<2xf32>, tensor<2xf64>, tensor<2xf8E4M3FN>, tensor<2xf8E5M2>, tensor<2xf8E4M3FNUZ>, tensor<2xf8E5M2FNUZ>, tensor<2xf8E8M0FNU>]} : () -> ()
// CHECK: "test.op"() {dtypes = [tensor<2xcomplex<f16>>, tensor<2xcomplex<f32>>, tensor<2xcomplex<f64>>]}
"test.op"() {dtypes = [tensor<2xcomplex<f16>>, tensor<2xcomplex<f32>>, tensor<2xcomplex<f64>>]} : () -> ()

// CHECK: "test.op"() {dtypes = [!vllm_ir.buffer<2xi1>, !vllm_ir.buffer<2xi8>, !vllm_ir.buffer<2xi16>, !vllm_ir.buffer<2xi32>, !vllm_ir.buffer<2xi64>, !vllm_ir.buffer<2xui8>, !vllm_ir.buffer<2xui16>, !vllm_ir.buffer<2xui32>, !vllm_ir.buffer<2xui64>]}
"test.op"() {dtypes = [!vllm_ir.buffer<2xi1>, !vllm_ir.buffer<2xi8>, !vllm_ir.buffer<2xi16>, !vllm_ir.buffer<2xi32>, !vllm_ir.buffer<2xi64>, !vllm_ir.buffer<2xui8>, !vllm_ir.buffer<2xui16>, !vllm_ir.buffer<2xui32>, !vllm_ir.buffer<2xui64>]} : () -> ()
// CHECK: "test.op"() {dtypes = [!vllm_ir.buffer<2xf16>, !vllm_ir.buffer<2xbf16>, !vllm_ir.buffer<2xf32>, !vllm_ir.buffer<2xf64>, !vllm_ir.buffer<2xf8E4M3FN>, !vllm_ir.buffer<2xf8E5M2>, !vllm_ir.buffer<2xf8E4M3FNUZ>, !vllm_ir.buffer<2xf8E5M2FNUZ>, !vllm_ir.buffer<2xf8E8M0FNU>]}
"test.op"() {dtypes = [!vllm_ir.buffer<2xf16>, !vllm_ir.buffer<2xbf16>, !vllm_ir.buffer<2xf32>, !vllm_ir.buffer<2xf64>, !vllm_ir.buffer<2xf8E4M3FN>, !vllm_ir.buffer<2xf8E5M2>, !vllm_ir.buffer<2xf8E4M3FNUZ>, !vllm_ir.buffer<2xf8E5M2FNUZ>, !vllm_ir.buffer<2xf8E8M0FNU>]} : () -> ()
// CHECK: "test.op"() {dtypes = [!vllm_ir.buffer<2xcomplex<f16>>, !vllm_ir.buffer<2xcomplex<f32>>, !vllm_ir.buffer<2xcomplex<f64>>]}
"test.op"() {dtypes = [!vllm_ir.buffer<2xcomplex<f16>>, !vllm_ir.buffer<2xcomplex<f32>>, !vllm_ir.buffer<2xcomplex<f64>>]} : () -> ()

// Fields in one order, absent ones left out; scalars; empty dimensions.
// CHECK: "test.op"() {windows = [!vllm_ir.buffer<f32>, !vllm_ir.buffer<0x3xf32>, !vllm_ir.buffer<4x8xbf16, strides = [1, 4], offset = 3, device = "cuda:0">]}
"test.op"() {windows = [!vllm_ir.buffer<f32>, !vllm_ir.buffer<0x3xf32>, !vllm_ir.buffer<4x8xbf16, device = "cuda:0", offset = 3, strides = [1, 4]>]} : () -> ()
// CHECK: "test.op"() {symbols = [!vllm_ir.buffer<?x8xf32, sizes = ["s0", 8], strides = ["8*s1", 1], offset = "s0 + 1">, tensor<?x8xf32, #vllm_ir.layout<sizes = ["2*s0", 8], strides = [8, 1], device = "meta">>]}
"test.op"() {symbols = [!vllm_ir.buffer<?x8xf32, sizes = ["s0", 8], strides = ["8*s1", 1], offset = "s0 + 1">, tensor<?x8xf32, #vllm_ir.layout<sizes = ["2*s0", 8], strides = [8, 1], device = "meta">>]} : () -> ()
