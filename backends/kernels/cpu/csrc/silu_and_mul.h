// silu of a row's first half, times its second half.
#pragma once

#include "gated.h"

namespace vllm_ir {

// x / (1 + exp(-x))
struct Silu {
  C10_ALWAYS_INLINE Vec operator()(const Vec& x) const {
    return x / (Vec(1) + x.neg().exp());
  }
};

inline at::Tensor silu_and_mul(const at::Tensor& x) {
  check_halves("silu_and_mul", x);
  return activate_and_mul(x, Silu());
}

} // namespace vllm_ir
