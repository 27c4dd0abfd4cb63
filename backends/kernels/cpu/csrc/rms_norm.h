// Root-mean-square normalisation of rows.
//
// Only the order of the sum differs from the native definition. 4 * kVec partial sums each take (4 * kVec)th square, with
// one rounding, and are added pairwise. For a row of n elements that is at most n / (4 * kVec) + 4 + log2(kVec)
// roundings of positive terms, so the sum has that many times 2^-24 as relative error at most, the result half of it.
#pragma once

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/ScalarType.h>

#include <cmath>

#include "chunks.h"
#include "rows.h"

namespace vllm_ir {

C10_ALWAYS_INLINE void add_square(Chunk& sum, const Chunk& chunk) {
  sum.low = at::vec::fmadd(chunk.low, chunk.low, sum.low);
  sum.high = at::vec::fmadd(chunk.high, chunk.high, sum.high);
}

// `read(start, count)` gives a chunk of the row.
template <typename Read>
C10_ALWAYS_INLINE float sum_of_squares(int64_t size, Read read) {
  Chunk even{Vec(0), Vec(0)}, odd = even;
  int64_t start = 0;
  for (; start + 2 * kChunk <= size; start += 2 * kChunk) {
    add_square(even, read(start, kChunk));
    add_square(odd, read(start + kChunk, kChunk));
  }
  for (; start < size; start += kChunk) {
    add_square(even, read(start, std::min(kChunk, size - start)));
  }
  const Chunk sum = even + odd;
  return at::vec::vec_reduce_all<float>([](Vec& a, Vec& b) { return a + b; }, sum.low + sum.high);
}

struct Norm {
  int64_t size; // of a row
  int64_t measured; // leading elements that the mean is over
  float epsilon;
};

// Normalise what `read` gives, round it to T, multiply by the weight if there is one, and hand chunks to `write`.
template <typename T, typename W, typename Read, typename Write>
C10_ALWAYS_INLINE void normalize(const Norm& norm, const W* weight, Read read, Write write) {
  const float mean = sum_of_squares(norm.measured, read) / static_cast<float>(norm.measured);
  const Vec scale(1.0f / std::sqrt(mean + norm.epsilon));
  for_chunks(norm.size, [&](int64_t start, int64_t count) C10_ALWAYS_INLINE_ATTRIBUTE {
    const Chunk values = read(start, count);
    const Chunk normed = rounded<T>(values * scale);
    write(start, count, values, weight == nullptr ? normed : normed * load(weight + start, count));
  });
}

// The checked arguments that both ops have in common.
struct NormArguments {
  Norm norm;
  at::Tensor weight; // of x's dtype or float32; undefined: none
  at::ScalarType result; // dtype of the normalised rows
};

inline NormArguments norm_arguments(
    const char* op,
    const at::Tensor& x,
    const std::optional<at::Tensor>& weight,
    double epsilon,
    std::optional<int64_t> variance_size) {
  check_rows(op, "x", x);
  const int64_t size = x.size(-1), measured = variance_size.value_or(size);
  TORCH_CHECK(
      !variance_size || (1 <= measured && measured <= size),
      "vllm_ir_cpu.", op, ": variance_size ", measured, " is not in [1, ", size, "], the last dimension of x");
  NormArguments arguments{{size, measured, static_cast<float>(epsilon)}, {}, x.scalar_type()};
  if (weight && weight->defined()) {
    check_rows(op, "weight", *weight);
    TORCH_CHECK(
        weight->dim() == 1 && weight->size(0) == size && weight->is_cpu(),
        "vllm_ir_cpu.", op, ": weight must have shape [", size, "], like the last dimension of x, and lie on the cpu; got ",
        weight->sizes(), " on ", weight->device());
    arguments.result = c10::promoteTypes(x.scalar_type(), weight->scalar_type());
    // Where the dtypes differ, the product is in float32, so the weight may as well come in it.
    arguments.weight = weight->to(weight->scalar_type() == x.scalar_type() ? x.scalar_type() : at::kFloat).contiguous();
  }
  return arguments;
}

// Call `body(T, weight)` with a value of x's C++ type and a pointer to the weight's elements.
template <typename Body>
inline void with_types(const at::Tensor& x, const at::Tensor& weight, Body body) {
  with_type(x.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    if (!weight.defined()) {
      body(zero, static_cast<const T*>(nullptr));
    } else if (weight.scalar_type() == x.scalar_type()) {
      body(zero, weight.const_data_ptr<T>());
    } else {
      body(zero, weight.const_data_ptr<float>());
    }
  });
}

inline at::Tensor rms_norm(
    const at::Tensor& x,
    const std::optional<at::Tensor>& weight,
    double epsilon,
    std::optional<int64_t> variance_size) {
  const NormArguments arguments = norm_arguments("rms_norm", x, weight, epsilon, variance_size);
  const Norm& norm = arguments.norm;
  const at::Tensor result = at::empty_like(x, x.options().dtype(arguments.result));
  const at::Tensor in = with_dense_rows(x), out = with_dense_rows(result);
  const Rows in_rows(in), out_rows(out);
  with_types(x, arguments.weight, [&](auto zero, const auto* scales) {
    using T = decltype(zero);
    using W = std::remove_const_t<std::remove_pointer_t<decltype(scales)>>;
    using O = std::conditional_t<std::is_same_v<T, W>, T, float>;
    const T* from = in.const_data_ptr<T>();
    O* to = out.mutable_data_ptr<O>();
    in_parallel(in_rows.count(), norm.size, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* in_row = from + in_rows.offset(row);
        O* out_row = to + out_rows.offset(row);
        normalize<T>(
            norm,
            scales,
            [&](int64_t start, int64_t count) C10_ALWAYS_INLINE_ATTRIBUTE { return load(in_row + start, count); },
            [&](int64_t start, int64_t count, const Chunk&, const Chunk& normed) C10_ALWAYS_INLINE_ATTRIBUTE {
              store(out_row + start, normed, count);
            });
      }
    });
  });
  write_back(result, out);
  return result;
}

// A residual is written, so that it and x have to be memory of their own.
inline void check_residual(const char* op, const at::Tensor& x, const at::Tensor& residual) {
  TORCH_CHECK(
      residual.sizes() == x.sizes() && residual.scalar_type() == x.scalar_type() && residual.is_cpu(),
      "vllm_ir_cpu.", op, ": residual must be like x, ", x.scalar_type(), " of shape ", x.sizes(), " on the cpu; got ",
      residual.scalar_type(), " of shape ", residual.sizes(), " on ", residual.device());
  at::assert_no_internal_overlap(residual);
  at::assert_no_overlap(x, residual);
}

inline void fused_add_rms_norm_(
    const at::Tensor& x,
    const at::Tensor& residual,
    const std::optional<at::Tensor>& weight,
    double epsilon,
    std::optional<int64_t> variance_size) {
  const char* op = "fused_add_rms_norm_";
  const NormArguments arguments = norm_arguments(op, x, weight, epsilon, variance_size);
  check_residual(op, x, residual);
  TORCH_CHECK(
      arguments.result == x.scalar_type(),
      "vllm_ir_cpu.", op, ": with this weight the result is ", arguments.result, ", which x, of ", x.scalar_type(),
      ", cannot hold");
  at::assert_no_internal_overlap(x);
  const Norm& norm = arguments.norm;
  const at::Tensor dense_x = with_dense_rows(x), dense_residual = with_dense_rows(residual);
  const Rows x_rows(dense_x), residual_rows(dense_residual);
  with_types(x, arguments.weight, [&](auto zero, const auto* scales) {
    using T = decltype(zero);
    T* x_data = dense_x.mutable_data_ptr<T>();
    T* residual_data = dense_residual.mutable_data_ptr<T>();
    in_parallel(x_rows.count(), norm.size, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        T* x_row = x_data + x_rows.offset(row);
        T* residual_row = residual_data + residual_rows.offset(row);
        normalize<T>(
            norm,
            scales,
            // Added twice, which needs no memory for the sum: the second time each chunk is read before it is written.
            [&](int64_t start, int64_t count) C10_ALWAYS_INLINE_ATTRIBUTE {
              return load(x_row + start, count) + load(residual_row + start, count);
            },
            [&](int64_t start, int64_t count, const Chunk& total, const Chunk& normed) C10_ALWAYS_INLINE_ATTRIBUTE {
              store(residual_row + start, total, count);
              store(x_row + start, normed, count);
            });
      }
    });
  });
  write_back(x, dense_x);
  write_back(residual, dense_residual);
}

} // namespace vllm_ir
