// Norms whose result is quantised, with and without a residual. Bit for bit what the two kernels give one after the other: a
// normalised row is rounded to its dtype before it is quantised.
#pragma once

#include <optional>
#include <tuple>

#include "made_rows.h"
#include "rms_norm.h"

namespace vllm_ir {

// What is normalised: x, or its sum with a residual, which takes the sum.
struct NormInput {
  at::Tensor x;
  at::Tensor residual; // undefined: none
  NormArguments arguments;
};

inline NormInput norm_input(
    const char* op,
    const at::Tensor& x,
    const at::Tensor& residual,
    const std::optional<at::Tensor>& weight,
    double epsilon,
    std::optional<int64_t> variance_size) {
  NormInput input{x, residual, norm_arguments(op, x, weight, epsilon, variance_size)};
  if (residual.defined()) {
    check_residual(op, x, residual);
  }
  return input;
}

inline at::Tensor normalize_and_quantize(const NormInput& input, const RowQuantizer& quantizer) {
  const Norm& norm = input.arguments.norm;
  const bool adds = input.residual.defined();
  const at::Tensor in = with_dense_rows(input.x), residual = adds ? with_dense_rows(input.residual) : in;
  const Rows in_rows(in), residual_rows(residual);
  at::Tensor result;
  with_types(in, input.arguments.weight, [&](auto zero, const auto* weight) {
    using T = decltype(zero);
    using W = std::remove_const_t<std::remove_pointer_t<decltype(weight)>>;
    using O = std::conditional_t<std::is_same_v<T, W>, T, float>;
    const T* from = in.const_data_ptr<T>();
    T* sums = adds ? residual.mutable_data_ptr<T>() : nullptr;
    result = quantize_made_rows<O>(quantizer, input.x, [&](int64_t row, O* to) {
      const T* in_row = from + in_rows.offset(row);
      if (!adds) {
        normalize<T>(
            norm,
            weight,
            [&](int64_t start, int64_t count) C10_ALWAYS_INLINE_ATTRIBUTE { return load(in_row + start, count); },
            [&](int64_t start, int64_t count, const Chunk&, const Chunk& normed) C10_ALWAYS_INLINE_ATTRIBUTE {
              store(to + start, normed, count);
            });
        return;
      }
      T* sum_row = sums + residual_rows.offset(row);
      normalize<T>(
          norm,
          weight,
          [&](int64_t start, int64_t count) C10_ALWAYS_INLINE_ATTRIBUTE {
            return load(in_row + start, count) + load(sum_row + start, count);
          },
          [&](int64_t start, int64_t count, const Chunk& total, const Chunk& normed) C10_ALWAYS_INLINE_ATTRIBUTE {
            store(sum_row + start, total, count);
            store(to + start, normed, count);
          });
    });
  });
  if (adds) {
    write_back(input.residual, residual);
  }
  return result;
}

using RowsAndScales = std::tuple<at::Tensor, at::Tensor>;

inline at::Tensor rms_norm_static_quant(
    const at::Tensor& x,
    const std::optional<at::Tensor>& weight,
    const at::Tensor& scale,
    double epsilon,
    std::optional<int64_t> variance_size,
    at::ScalarType dtype) {
  const char* op = "rms_norm_static_quant";
  const NormInput input = norm_input(op, x, {}, weight, epsilon, variance_size);
  return normalize_and_quantize(input, with_one_scale(op, x, scale, dtype));
}

inline RowsAndScales rms_norm_token_quant(
    const at::Tensor& x,
    const std::optional<at::Tensor>& weight,
    double epsilon,
    const std::optional<at::Tensor>& scale_ub,
    std::optional<int64_t> variance_size,
    at::ScalarType dtype) {
  const char* op = "rms_norm_token_quant";
  const NormInput input = norm_input(op, x, {}, weight, epsilon, variance_size);
  const RowQuantizer quantizer = with_token_scales(op, x, scale_ub, dtype);
  return {normalize_and_quantize(input, quantizer), quantizer.scales};
}

inline RowsAndScales rms_norm_group_quant(
    const at::Tensor& x,
    const std::optional<at::Tensor>& weight,
    double epsilon,
    int64_t group_size,
    bool use_ue8m0,
    double quant_epsilon,
    std::optional<int64_t> variance_size,
    at::ScalarType dtype) {
  const char* op = "rms_norm_group_quant";
  const NormInput input = norm_input(op, x, {}, weight, epsilon, variance_size);
  const RowQuantizer quantizer = with_group_scales(op, x, group_size, use_ue8m0, quant_epsilon, dtype);
  return {normalize_and_quantize(input, quantizer), quantizer.scales};
}

inline at::Tensor fused_add_rms_norm_static_quant_(
    const at::Tensor& x,
    const at::Tensor& residual,
    const std::optional<at::Tensor>& weight,
    const at::Tensor& scale,
    double epsilon,
    std::optional<int64_t> variance_size,
    at::ScalarType dtype) {
  const char* op = "fused_add_rms_norm_static_quant_";
  const NormInput input = norm_input(op, x, residual, weight, epsilon, variance_size);
  return normalize_and_quantize(input, with_one_scale(op, x, scale, dtype));
}

inline RowsAndScales fused_add_rms_norm_token_quant_(
    const at::Tensor& x,
    const at::Tensor& residual,
    const std::optional<at::Tensor>& weight,
    double epsilon,
    const std::optional<at::Tensor>& scale_ub,
    std::optional<int64_t> variance_size,
    at::ScalarType dtype) {
  const char* op = "fused_add_rms_norm_token_quant_";
  const NormInput input = norm_input(op, x, residual, weight, epsilon, variance_size);
  const RowQuantizer quantizer = with_token_scales(op, x, scale_ub, dtype);
  return {normalize_and_quantize(input, quantizer), quantizer.scales};
}

inline RowsAndScales fused_add_rms_norm_group_quant_(
    const at::Tensor& x,
    const at::Tensor& residual,
    const std::optional<at::Tensor>& weight,
    double epsilon,
    int64_t group_size,
    bool use_ue8m0,
    double quant_epsilon,
    std::optional<int64_t> variance_size,
    at::ScalarType dtype) {
  const char* op = "fused_add_rms_norm_group_quant_";
  const NormInput input = norm_input(op, x, residual, weight, epsilon, variance_size);
  const RowQuantizer quantizer = with_group_scales(op, x, group_size, use_ue8m0, quant_epsilon, dtype);
  return {normalize_and_quantize(input, quantizer), quantizer.scales};
}

} // namespace vllm_ir
