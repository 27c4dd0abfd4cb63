// Quantisation of rows that a kernel makes, one at a time in a thread's own memory, instead of a tensor of them. What a row
// becomes is decided while the program runs, which costs less than compiling the kernels that make rows for every case.
#pragma once

#include <ATen/ops/empty_like.h>

#include <functional>
#include <vector>

#include "quantization.h"

namespace vllm_ir {

struct RowQuantizer {
  at::ScalarType dtype; // of codes
  int64_t group_size; // neighbours that have one scale; at least as long as a row, if there is one scale for all
  float scale; // of all, if there is no `scale_of`
  std::function<float(float)> scale_of; // of the greatest magnitude of a group
  at::Tensor scales; // takes those of the groups, row by row; undefined: there is one for all
};

inline void check_codes(const char* op, at::ScalarType dtype) {
  TORCH_CHECK(
      dtype == Fp8::kType || dtype == Int8::kType,
      "vllm_ir_cpu.", op, ": dtype must be float8_e4m3fn or int8, got ", dtype);
}

// `like` is of the shape of all rows.
inline RowQuantizer with_one_scale(
    const char* op, const at::Tensor& like, const at::Tensor& scale, at::ScalarType dtype) {
  check_codes(op, dtype);
  return {dtype, like.size(-1), one_number(op, "scale", scale), nullptr, {}};
}

inline RowQuantizer with_token_scales(
    const char* op, const at::Tensor& like, const std::optional<at::Tensor>& scale_ub, at::ScalarType dtype) {
  check_codes(op, dtype);
  RowQuantizer quantizer{dtype, like.size(-1), 0, nullptr, empty_scales(op, like, like.size(-1))};
  if (dtype == Fp8::kType) {
    quantizer.scale_of = token_scale<Fp8>(op, scale_ub);
  } else {
    quantizer.scale_of = token_scale<Int8>(op, scale_ub);
  }
  return quantizer;
}

inline RowQuantizer with_group_scales(
    const char* op, const at::Tensor& like, int64_t group_size, bool use_ue8m0, double epsilon, at::ScalarType dtype) {
  check_codes(op, dtype);
  RowQuantizer quantizer{dtype, group_size, 0, nullptr, empty_scales(op, like, group_size)};
  if (dtype == Fp8::kType) {
    quantizer.scale_of = group_scale<Fp8>(use_ue8m0, epsilon);
  } else {
    quantizer.scale_of = group_scale<Int8>(use_ue8m0, epsilon);
  }
  return quantizer;
}

// `scales` is where those of the row go, or null.
template <typename Dtype, typename O>
inline void quantize_row(
    const RowQuantizer& quantizer, const O* from, typename Dtype::Element* to, int64_t size, float* scales) {
  for (int64_t start = 0; start < size; start += quantizer.group_size) {
    float scale = quantizer.scale;
    if (scales != nullptr) {
      scale = quantizer.scale_of(greatest_magnitude(from + start, quantizer.group_size));
      *scales++ = scale;
    }
    quantize<Dtype>(from + start, to + start, quantizer.group_size, scale);
  }
}

// Quantise rows of O, which `make(row, to)` writes to where they are told to. The result is laid out as `like`.
template <typename O, typename Make>
inline at::Tensor quantize_made_rows(const RowQuantizer& quantizer, const at::Tensor& like, Make make) {
  const at::Tensor result = at::empty_like(like, like.options().dtype(quantizer.dtype));
  const at::Tensor out = with_dense_rows(result);
  const Rows rows(out);
  const int64_t size = out.size(-1);
  float* scales = quantizer.scales.defined() ? quantizer.scales.mutable_data_ptr<float>() : nullptr;
  in_parallel(rows.count(), size, [&](int64_t begin, int64_t end) {
    std::vector<O> made(size);
    for (int64_t row = begin; row < end; ++row) {
      make(row, made.data());
      float* row_scales = scales == nullptr ? nullptr : scales + row * (size / quantizer.group_size);
      if (quantizer.dtype == Fp8::kType) {
        auto* to = out.mutable_data_ptr<Fp8::Element>() + rows.offset(row);
        quantize_row<Fp8>(quantizer, made.data(), to, size, row_scales);
      } else {
        auto* to = out.mutable_data_ptr<Int8::Element>() + rows.offset(row);
        quantize_row<Int8>(quantizer, made.data(), to, size, row_scales);
      }
    }
  });
  write_back(result, out);
  return result;
}

} // namespace vllm_ir
