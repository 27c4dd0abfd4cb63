// Mixture of experts: the tokens of each expert together, so that its products are those of matrices.
//
// Products are torch's own, each rounded to the dtype; what lies between them is silu_and_mul. The weighted results of a
// token are added in the order of its experts, in float32.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <numeric>
#include <vector>

#include "chunks.h"
#include "rows.h"
#include "silu_and_mul.h"

namespace vllm_ir {

// Pairs of a token and one of its experts, ordered by expert; those of experts that are elsewhere are left out.
struct Routing {
  std::vector<int64_t> ends; // for each expert, where its pairs end
  std::vector<int64_t> pairs; // token * k + number of the expert among the token's
  std::vector<int64_t> places; // of each pair in `pairs`; -1: left out

  Routing(const at::Tensor& ids, int64_t experts) : ends(experts + 1, 0), places(ids.numel(), -1) {
    const int64_t* numbers = ids.const_data_ptr<int64_t>();
    const auto is_here = [&](int64_t pair) { return 0 <= numbers[pair] && numbers[pair] < experts; };
    const int64_t count = ids.numel();
    for (int64_t pair = 0; pair < count; ++pair) {
      ends[is_here(pair) ? numbers[pair] + 1 : 0] += is_here(pair);
    }
    std::partial_sum(ends.begin(), ends.end(), ends.begin());
    pairs.resize(ends.back());
    // From here on, `ends[expert]` is where the expert's next pair goes, which at last is where they end.
    for (int64_t pair = 0; pair < count; ++pair) {
      if (is_here(pair)) {
        places[pair] = ends[numbers[pair]]++;
        pairs[places[pair]] = pair;
      }
    }
  }
};

// Rows of x, which has dense rows, for some pairs.
template <typename T>
inline void gather_rows(const at::Tensor& x, const int64_t* pairs, int64_t k, const at::Tensor& rows) {
  const T* from = x.const_data_ptr<T>();
  T* to = rows.mutable_data_ptr<T>();
  const int64_t size = x.size(1);
  in_parallel(rows.size(0), size, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::copy_n(from + pairs[row] / k * x.stride(0), size, to + row * size);
    }
  });
}

// What the experts made of each token, weighted and added.
template <typename T>
inline void combine(
    const at::Tensor& results, const Routing& routing, const at::Tensor& weights, const at::Tensor& sums) {
  const int64_t tokens = sums.size(0), size = sums.size(1), k = weights.size(1);
  const T* from = results.const_data_ptr<T>();
  const float* weight = weights.const_data_ptr<float>();
  T* to = sums.mutable_data_ptr<T>();
  in_parallel(tokens, size * std::max<int64_t>(k, 1), [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      for_chunks(size, [&](int64_t start, int64_t count) C10_ALWAYS_INLINE_ATTRIBUTE {
        Chunk sum{Vec(0), Vec(0)};
        for (int64_t pair = token * k; pair < (token + 1) * k; ++pair) {
          if (routing.places[pair] >= 0) {
            sum = sum + load(from + routing.places[pair] * size + start, count) * Vec(weight[pair]);
          }
        }
        store(to + token * size + start, sum, count);
      });
    }
  });
}

inline void check_moe(
    const at::Tensor& x,
    const at::Tensor& w13,
    const at::Tensor& w2,
    const at::Tensor& topk_weights,
    const at::Tensor& topk_ids) {
  const char* op = "fused_moe";
  check_rows(op, "x", x);
  for (const at::Tensor& tensor : {x, w13, w2, topk_weights, topk_ids}) {
    TORCH_CHECK(tensor.is_cpu(), "vllm_ir_cpu.", op, ": takes tensors on the cpu, got one on ", tensor.device());
  }
  TORCH_CHECK(
      x.dim() == 2 && w13.dim() == 3 && w2.dim() == 3 && w13.scalar_type() == x.scalar_type() &&
          w2.scalar_type() == x.scalar_type() && w13.size(2) == x.size(1) && w13.size(1) == 2 * w2.size(2) &&
          w2.size(0) == w13.size(0) && w2.size(1) == x.size(1),
      "vllm_ir_cpu.", op, ": x must be [tokens, d], w13 [experts, 2 * i, d] and w2 [experts, d, i] of one dtype; got ",
      x.scalar_type(), " of shape ", x.sizes(), ", ", w13.scalar_type(), " of shape ", w13.sizes(), " and ",
      w2.scalar_type(), " of shape ", w2.sizes());
  TORCH_CHECK(
      topk_ids.dim() == 2 && topk_ids.size(0) == x.size(0) && topk_weights.sizes() == topk_ids.sizes() &&
          at::isFloatingType(topk_weights.scalar_type()) &&
          (topk_ids.scalar_type() == at::kLong || topk_ids.scalar_type() == at::kInt),
      "vllm_ir_cpu.", op, ": topk_weights, floating, and topk_ids, int64 or int32, must be [", x.size(0), ", k]; got ",
      topk_weights.scalar_type(), " of shape ", topk_weights.sizes(), " and ", topk_ids.scalar_type(), " of shape ",
      topk_ids.sizes());
}

inline at::Tensor fused_moe(
    const at::Tensor& x,
    const at::Tensor& w13,
    const at::Tensor& w2,
    const at::Tensor& topk_weights,
    const at::Tensor& topk_ids) {
  check_moe(x, w13, w2, topk_weights, topk_ids);
  const int64_t k = topk_ids.size(1), experts = w13.size(0), size = x.size(1);
  const Routing routing(topk_ids.to(at::kLong).contiguous(), experts);
  const at::Tensor weights = topk_weights.to(at::kFloat).contiguous();
  const at::Tensor in = with_dense_rows(x);
  const at::Tensor results = at::empty({static_cast<int64_t>(routing.pairs.size()), size}, x.options());
  const at::Tensor sums = at::empty(x.sizes(), x.options());
  with_type(x.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    for (int64_t expert = 0, begin = 0; expert < experts; begin = routing.ends[expert++]) {
      const int64_t count = routing.ends[expert] - begin;
      if (count == 0) {
        continue;
      }
      const at::Tensor rows = at::empty({count, size}, x.options());
      gather_rows<T>(in, routing.pairs.data() + begin, k, rows);
      const at::Tensor gated = silu_and_mul(at::mm(rows, w13.select(0, expert).t()));
      at::Tensor part = results.narrow(0, begin, count);
      at::mm_out(part, gated, w2.select(0, expert).t());
    }
    combine<T>(results, routing, weights, sums);
  });
  return sums;
}

} // namespace vllm_ir
