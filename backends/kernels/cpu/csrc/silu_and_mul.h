// silu of a row's first half, times its second half.
#pragma once

#include <ATen/ops/empty_like.h>

#include "chunks.h"
#include "rows.h"

namespace vllm_ir {

C10_ALWAYS_INLINE Vec silu(const Vec& x) {
  return x / (Vec(1) + x.neg().exp());
}

inline at::Tensor silu_and_mul(const at::Tensor& x) {
  check_rows("silu_and_mul", "x", x);
  TORCH_CHECK(
      x.size(-1) % 2 == 0, "vllm_ir_cpu.silu_and_mul: the last dimension of x must be even, got shape ", x.sizes());
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
        const T* up = gate + half;
        T* out_row = to + out_rows.offset(row);
        for_chunks(half, [&](int64_t start, int64_t count) C10_ALWAYS_INLINE_ATTRIBUTE {
          const Chunk x_chunk = load(gate + start, count);
          const Chunk activated = rounded<T>({silu(x_chunk.low), silu(x_chunk.high)});
          store(out_row + start, activated * load(up + start, count), count);
        });
      }
    });
  });
  write_back(result, out);
  return result;
}

} // namespace vllm_ir
