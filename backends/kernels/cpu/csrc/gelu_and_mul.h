// gelu of a row's first half, times its second half.
//
// Both forms are x / 2 * (1 + f(x)), with an f in [-1, 1] that takes steps and roundings of its own. Where f is near -1 the
// sum cancels, so what is bounded is the error in relation to x and not to the result.
#pragma once

#include <cmath>
#include <string_view>

#include "gated.h"

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

inline at::Tensor gelu_and_mul(const at::Tensor& x, std::string_view approximate) {
  check_halves("gelu_and_mul", x);
  TORCH_CHECK(
      approximate == "none" || approximate == "tanh",
      "vllm_ir_cpu.gelu_and_mul: approximate must be 'none' or 'tanh', got '", approximate, "'");
  return approximate == "tanh" ? activate_and_mul(x, GeluByTanh()) : activate_and_mul(x, GeluByErf());
}

} // namespace vllm_ir
