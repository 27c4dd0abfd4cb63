// Quantisation to 8 bits, with a scale for all, for each row, or for each group of neighbours. Bit for bit the native
// definitions: maxima are exact in any order, and every quotient and product is rounded as there.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cmath>
#include <cstring>
#include <tuple>
#include <type_traits>

#include "chunks.h"
#include "codes.h"
#include "rows.h"

namespace vllm_ir {

// NaN if there is one.
template <typename T>
C10_ALWAYS_INLINE float greatest_magnitude(const T* elements, int64_t size) {
  Chunk most{Vec(0), Vec(0)};
  for_chunks(size, [&](int64_t start, int64_t count) C10_ALWAYS_INLINE_ATTRIBUTE {
    const Chunk chunk = load(elements + start, count);
    most = {at::vec::maximum(most.low, chunk.low.abs()), at::vec::maximum(most.high, chunk.high.abs())};
  });
  return at::vec::vec_reduce_all<float>(
      [](Vec& a, Vec& b) { return at::vec::maximum(a, b); }, at::vec::maximum(most.low, most.high));
}

// Of two numbers; NaN if the first is, or the second.
inline float least_of(float a, float b) {
  return std::isnan(a) || a < b ? a : b;
}
inline float greatest_of(float a, float b) {
  return std::isnan(a) || a > b ? a : b;
}

// Of a positive number; what is subnormal becomes the least normal number.
inline float rounded_up_to_power(float number) {
  if (std::isnan(number)) {
    return number;
  }
  uint32_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  bits = (bits + 0x7fffff) & 0xff800000;
  std::memcpy(&number, &bits, sizeof bits);
  return number;
}

template <typename Dtype, typename T>
C10_ALWAYS_INLINE void quantize(const T* from, typename Dtype::Element* to, int64_t size, float scale) {
  const Vec factor(1.0f / scale);
  for_chunks(size, [&](int64_t start, int64_t count) C10_ALWAYS_INLINE_ATTRIBUTE {
    store_codes<Dtype>(to + start, load(from + start, count) * factor, count);
  });
}

// Quantise each group of `group_size` neighbours in a row; `scale_of(elements)` gives its scale, and `scales`, unless it is
// null, takes them in the order of the groups.
template <typename Dtype, typename ScaleOf>
inline at::Tensor quantize_groups(const at::Tensor& x, int64_t group_size, float* scales, ScaleOf scale_of) {
  const at::Tensor result = at::empty_like(x, x.options().dtype(Dtype::kType));
  const at::Tensor in = with_dense_rows(x), out = with_dense_rows(result);
  const Rows in_rows(in), out_rows(out);
  const int64_t groups = group_size > 0 ? x.size(-1) / group_size : 0;
  with_type(x.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = in.const_data_ptr<T>();
    auto* to = out.mutable_data_ptr<typename Dtype::Element>();
    in_parallel(in_rows.count() * groups, group_size, [&](int64_t begin, int64_t end) {
      for (int64_t group = begin; group < end; ++group) {
        const int64_t row = group / groups, start = group % groups * group_size;
        const T* elements = from + in_rows.offset(row) + start;
        const float scale = scale_of(elements);
        if (scales != nullptr) {
          scales[group] = scale;
        }
        quantize<Dtype>(elements, to + out_rows.offset(row) + start, group_size, scale);
      }
    });
  });
  write_back(result, out);
  return result;
}

// The only element of a scale.
inline float one_number(const char* op, const char* name, const at::Tensor& tensor) {
  TORCH_CHECK(
      tensor.scalar_type() == at::kFloat && tensor.numel() == 1 && tensor.is_cpu(),
      "vllm_ir_cpu.", op, ": ", name, " must be float32 with one element, on the cpu; got ", tensor.scalar_type(),
      " of shape ", tensor.sizes(), " on ", tensor.device());
  return *tensor.const_data_ptr<float>();
}

// For each row as many scales as it has groups, of a size that has to fit.
inline at::Tensor empty_scales(const char* op, const at::Tensor& rows, int64_t group_size) {
  TORCH_CHECK(
      group_size > 0 && rows.size(-1) % group_size == 0,
      "vllm_ir_cpu.", op, ": the last dimension of x must be a multiple of the group's size, ", group_size,
      ", and that positive; got shape ", rows.sizes());
  auto sizes = rows.sizes().vec();
  sizes.back() /= group_size;
  return at::empty(sizes, rows.options().dtype(at::kFloat));
}

// What makes the scale of a row of its greatest magnitude.
template <typename Dtype>
inline auto token_scale(const char* op, const std::optional<at::Tensor>& scale_ub) {
  if constexpr (std::is_same_v<Dtype, Fp8>) {
    const bool bounded = scale_ub && scale_ub->defined();
    const float bound = bounded ? one_number(op, "scale_ub", *scale_ub) : 0;
    const float smallest = 1.0 / (448.0 * 512.0);
    return [=](float most) { return greatest_of((bounded ? least_of(most, bound) : most) / Fp8::kMost, smallest); };
  } else {
    TORCH_CHECK(!scale_ub || !scale_ub->defined(), "vllm_ir_cpu.", op, ": int8 has no scale_ub, got one");
    return [](float most) { return most / Int8::kMost; };
  }
}

// Likewise of a group.
template <typename Dtype>
inline auto group_scale(bool use_ue8m0, double epsilon) {
  const float least = static_cast<float>(epsilon);
  return [=](float most) {
    const float scale = greatest_of(most, least) / Dtype::kMost;
    return use_ue8m0 ? rounded_up_to_power(scale) : scale;
  };
}

template <typename Dtype>
inline at::Tensor static_scaled_quant(const char* op, const at::Tensor& x, const at::Tensor& scale) {
  check_rows(op, "x", x);
  const float number = one_number(op, "scale", scale);
  return quantize_groups<Dtype>(x, x.size(-1), nullptr, [&](const auto*) { return number; });
}

// `scale_of(most)` makes a scale of the greatest magnitude of a group.
template <typename Dtype, typename ScaleOf>
inline std::tuple<at::Tensor, at::Tensor> dynamic_scaled_quant(
    const char* op, const at::Tensor& x, int64_t group_size, ScaleOf scale_of) {
  const at::Tensor scales = empty_scales(op, x, group_size);
  const at::Tensor result = quantize_groups<Dtype>(
      x, group_size, scales.mutable_data_ptr<float>(), [&](const auto* elements) C10_ALWAYS_INLINE_ATTRIBUTE {
        return scale_of(greatest_magnitude(elements, group_size));
      });
  return {result, scales};
}

inline at::Tensor static_scaled_fp8_quant(const at::Tensor& x, const at::Tensor& scale) {
  return static_scaled_quant<Fp8>("static_scaled_fp8_quant", x, scale);
}

inline at::Tensor static_scaled_int8_quant(const at::Tensor& x, const at::Tensor& scale) {
  return static_scaled_quant<Int8>("static_scaled_int8_quant", x, scale);
}

inline std::tuple<at::Tensor, at::Tensor> dynamic_per_token_scaled_fp8_quant(
    const at::Tensor& x, const std::optional<at::Tensor>& scale_ub) {
  const char* op = "dynamic_per_token_scaled_fp8_quant";
  check_rows(op, "x", x);
  return dynamic_scaled_quant<Fp8>(op, x, x.size(-1), token_scale<Fp8>(op, scale_ub));
}

inline std::tuple<at::Tensor, at::Tensor> dynamic_per_token_scaled_int8_quant(const at::Tensor& x) {
  const char* op = "dynamic_per_token_scaled_int8_quant";
  check_rows(op, "x", x);
  return dynamic_scaled_quant<Int8>(op, x, x.size(-1), token_scale<Int8>(op, std::nullopt));
}

inline std::tuple<at::Tensor, at::Tensor> per_token_group_fp8_quant(
    const at::Tensor& x, int64_t group_size, bool use_ue8m0, double epsilon) {
  const char* op = "per_token_group_fp8_quant";
  check_rows(op, "x", x);
  return dynamic_scaled_quant<Fp8>(op, x, group_size, group_scale<Fp8>(use_ue8m0, epsilon));
}

inline std::tuple<at::Tensor, at::Tensor> per_token_group_int8_quant(
    const at::Tensor& x, int64_t group_size, double epsilon) {
  const char* op = "per_token_group_int8_quant";
  check_rows(op, "x", x);
  return dynamic_scaled_quant<Int8>(op, x, group_size, group_scale<Int8>(false, epsilon));
}

} // namespace vllm_ir
