// gelu of a row's first half, times its second half.
//
// Both forms are x / 2 * (1 + f(x)), with an f in [-1, 1] that takes steps and roundings of its own. Where f is near -1 the
// sum cancels, so what is bounded is the error in relation to x and not to the result.
#pragma once

#include <ATen/ops/empty_like.h>

#include <cmath>
#include <string_view>

#include "chunks.h"
#include "rows.h"

namespace vllm_ir {

// x / 2 * (1 + erf(x / sqrt(2)))
struct GeluByErf {
  C10_ALWAYS_INLINE Vec operator()(const Vec& x) const {
    return x * Vec(0.5f) * (Vec(1) + (x * Vec(static_cast<float>(M_SQRT1_2))).erf());
  }
};

// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))
struct GeluByTanh {
  C10_ALWAYS_INLINE Vec operator()(const Vec& x) const {
    const Vec inner = x + Vec(0.044715f) * (x * x * x);
    return x * Vec(0.5f) * (Vec(1) + (inner * Vec(static_cast<float>(M_SQRT1_2 * M_2_SQRTPI))).tanh());
  }
};

template <typename T, typename Activation>
inline void activate_and_mul(const at::Tensor& in, const at::Tensor& out, Activation activation) {
  const Rows in_rows(in), out_rows(out);
  const int64_t half = out.size(-1);
  const T* from = in.const_data_ptr<T>();
  T* to = out.mutable_data_ptr<T>();
  in_parallel(in_rows.count(), half, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* gate = from + in_rows.offset(row);
      const T* up = gate + half;
      T* out_row = to + out_rows.offset(row);
      for_chunks(half, [&](int64_t start, int64_t count) C10_ALWAYS_INLINE_ATTRIBUTE {
        const Chunk x = load(gate + start, count);
        const Chunk activated = rounded<T>({activation(x.low), activation(x.high)});
        store(out_row + start, activated * load(up + start, count), count);
      });
    }
  });
}

inline at::Tensor gelu_and_mul(const at::Tensor& x, std::string_view approximate) {
  check_rows("gelu_and_mul", "x", x);
  TORCH_CHECK(
      x.size(-1) % 2 == 0, "vllm_ir_cpu.gelu_and_mul: the last dimension of x must be even, got shape ", x.sizes());
  TORCH_CHECK(
      approximate == "none" || approximate == "tanh",
      "vllm_ir_cpu.gelu_and_mul: approximate must be 'none' or 'tanh', got '", approximate, "'");
  const at::Tensor result = at::empty_like(x.narrow(-1, 0, x.size(-1) / 2));
  const at::Tensor in = with_dense_rows(x), out = with_dense_rows(result);
  with_type(x.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    if (approximate == "tanh") {
      activate_and_mul<T>(in, out, GeluByTanh());
    } else {
      activate_and_mul<T>(in, out, GeluByErf());
    }
  });
  write_back(result, out);
  return result;
}

} // namespace vllm_ir
