// Gated activations whose result is quantised to float8_e4m3fn. Bit for bit what the two kernels give one after the other: a
// gated row is rounded to the dtype of x, as that of the activation's kernel is.
#pragma once

#include <string_view>
#include <tuple>

#include "gelu_and_mul.h"
#include "made_rows.h"
#include "silu_and_mul.h"

namespace vllm_ir {

inline at::Tensor first_half(const at::Tensor& x) {
  return x.narrow(-1, 0, x.size(-1) / 2);
}

template <typename Activation>
inline at::Tensor activate_and_quantize(const at::Tensor& x, const RowQuantizer& quantizer, Activation activation) {
  const at::Tensor in = with_dense_rows(x);
  const Rows rows(in);
  const int64_t half = x.size(-1) / 2;
  at::Tensor result;
  with_type(x.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = in.const_data_ptr<T>();
    result = quantize_made_rows<T>(quantizer, first_half(x), [&](int64_t row, T* to) {
      const T* gate = from + rows.offset(row);
      activate_row(gate, gate + half, to, half, activation);
    });
  });
  return result;
}

inline at::Tensor gated_quant(const at::Tensor& x, const RowQuantizer& quantizer, std::string_view activation) {
  if (activation == "silu") {
    return activate_and_quantize(x, quantizer, Silu());
  }
  return activation == "gelu" ? activate_and_quantize(x, quantizer, GeluByErf())
                              : activate_and_quantize(x, quantizer, GeluByTanh());
}

inline void check_gated(const char* op, const at::Tensor& x, std::string_view activation) {
  check_halves(op, x);
  TORCH_CHECK(
      activation == "silu" || activation == "gelu" || activation == "gelu_tanh",
      "vllm_ir_cpu.", op, ": activation must be 'silu', 'gelu' or 'gelu_tanh', got '", activation, "'");
}

inline at::Tensor gated_static_fp8_quant(const at::Tensor& x, const at::Tensor& scale, std::string_view activation) {
  const char* op = "gated_static_fp8_quant";
  check_gated(op, x, activation);
  return gated_quant(x, with_one_scale(op, first_half(x), scale, Fp8::kType), activation);
}

inline std::tuple<at::Tensor, at::Tensor> gated_token_fp8_quant(
    const at::Tensor& x, const std::optional<at::Tensor>& scale_ub, std::string_view activation) {
  const char* op = "gated_token_fp8_quant";
  check_gated(op, x, activation);
  const RowQuantizer quantizer = with_token_scales(op, first_half(x), scale_ub, Fp8::kType);
  return {gated_quant(x, quantizer, activation), quantizer.scales};
}

inline std::tuple<at::Tensor, at::Tensor> gated_group_fp8_quant(
    const at::Tensor& x, int64_t group_size, bool use_ue8m0, double epsilon, std::string_view activation) {
  const char* op = "gated_group_fp8_quant";
  check_gated(op, x, activation);
  const RowQuantizer quantizer = with_group_scales(op, first_half(x), group_size, use_ue8m0, epsilon, Fp8::kType);
  return {gated_quant(x, quantizer, activation), quantizer.scales};
}

} // namespace vllm_ir
