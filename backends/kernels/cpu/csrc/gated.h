// Gated activations of rows: an activation of the first half, rounded, times the second half.
#pragma once

#include <ATen/ops/empty_like.h>

#include "chunks.h"
#include "rows.h"

namespace vllm_ir {

// `activation(x)` is of vectors; `gate` and `up` are the halves of a row, `half` elements each.
template <typename T, typename Activation>
C10_ALWAYS_INLINE void activate_row(const T* gate, const T* up, T* to, int64_t half, Activation activation) {
  for_chunks(half, [&](int64_t start, int64_t count) C10_ALWAYS_INLINE_ATTRIBUTE {
    const Chunk x = load(gate + start, count);
    const Chunk activated = rounded<T>({activation(x.low), activation(x.high)});
    store(to + start, activated * load(up + start, count), count);
  });
}

inline void check_halves(const char* op, const at::Tensor& x) {
  check_rows(op, "x", x);
  TORCH_CHECK(
      x.size(-1) % 2 == 0, "vllm_ir_cpu.", op, ": the last dimension of x must be even, got shape ", x.sizes());
}

// Of an `x` that was checked.
template <typename Activation>
inline at::Tensor activate_and_mul(const at::Tensor& x, Activation activation) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor result = at::empty_like(x.narrow(-1, 0, half));
  const at::Tensor in = with_dense_rows(x), out = with_dense_rows(result);
  const Rows in_rows(in), out_rows(out);
  with_type(x.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = in.const_data_ptr<T>();
    T* to = out.mutable_data_ptr<T>();
    in_parallel(in_rows.count(), half, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* gate = from + in_rows.offset(row);
        activate_row(gate, gate + half, to + out_rows.offset(row), half, activation);
      }
    });
  });
  write_back(result, out);
  return result;
}

} // namespace vllm_ir
