// Attention to a paged cache: one pass over the keys, with a softmax that is corrected as greater scores come.
//
// Keys are taken kTile at a time and widened to float32. What the tile adds is scaled by exp(score - greatest so far); where
// a tile has a greater score, the sums so far are scaled down first. A product of `size` elements is 2 * kVec partial sums,
// which are added pairwise; weighted values are added in the order of the keys, with one rounding each.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <vector>

#include "chunks.h"
#include "rows.h"

namespace vllm_ir {

constexpr int64_t kTile = 32; // of 128 elements in float32: 16 KiB, half of what a core has nearest
constexpr int64_t kTogether = 4; // products at once, so that no addition waits for the one before it

struct Attention {
  int64_t heads; // of queries, for each of the keys
  int64_t size; // of a head
  int64_t padded; // to whole chunks
  float scale;
  int64_t window; // keys that a token sees at most
  float soft_cap; // 0: none
};

// One sequence's keys or values of one head.
template <typename T>
struct Pages {
  const T* data;
  const int64_t* blocks;
  int64_t block_size, block_stride, offset_stride;

  const T* row(int64_t index) const {
    return data + blocks[index / block_size] * block_stride + index % block_size * offset_stride;
  }
};

// Rows `first` to `first + count`, each padded with zeros.
template <typename T>
inline void widen(const Pages<T>& pages, int64_t first, int64_t count, const Attention& how, float* tile) {
  for (int64_t i = 0; i < count; ++i) {
    const T* row = pages.row(first + i);
    for_chunks(how.size, [&](int64_t start, int64_t length) C10_ALWAYS_INLINE_ATTRIBUTE {
      store_full(tile + i * how.padded + start, load(row + start, length));
    });
  }
}

C10_ALWAYS_INLINE void add_product(Chunk& sum, const Chunk& a, const Chunk& b) {
  sum.low = at::vec::fmadd(a.low, b.low, sum.low);
  sum.high = at::vec::fmadd(a.high, b.high, sum.high);
}

// Scores of one query with the keys of a tile, and the greatest of them. The tile's rows behind `count` may hold anything.
inline float score(const Attention& how, const float* query, const float* tile, int64_t count, float* scores) {
  for (int64_t i = 0; i < count; i += kTogether) {
    Chunk sums[kTogether];
    for (Chunk& sum : sums) {
      sum = {Vec(0), Vec(0)};
    }
    for (int64_t start = 0; start < how.padded; start += kChunk) {
      const Chunk part = load_full(query + start);
      for (int64_t j = 0; j < kTogether; ++j) {
        add_product(sums[j], part, load_full(tile + (i + j) * how.padded + start));
      }
    }
    for (int64_t j = 0; j < kTogether; ++j) {
      scores[i + j] = how.scale *
          at::vec::vec_reduce_all<float>([](Vec& a, Vec& b) { return a + b; }, sums[j].low + sums[j].high);
    }
  }
  float greatest = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < count; ++i) {
    if (how.soft_cap > 0) {
      scores[i] = std::tanh(scores[i] / how.soft_cap) * how.soft_cap;
    }
    greatest = std::max(greatest, scores[i]);
  }
  return greatest;
}

// The weighted sum of the values so far, for one head of queries.
struct Sum {
  // Of the scores. Not -inf, which scores may be: a difference of two is no number.
  float greatest = std::numeric_limits<float>::lowest();
  float weight = 0;

  // Add the rows of a tile of values; `scores` become weights.
  void add(const Attention& how, float tile_greatest, float* scores, const float* tile, int64_t count, float* values) {
    float correction = 1;
    if (tile_greatest > greatest) {
      correction = std::exp(greatest - tile_greatest); // 0 for the first tile
      greatest = tile_greatest;
    }
    const Vec shift(greatest);
    for (int64_t i = 0; i < kTile; i += kVec) {
      (Vec::loadu(scores + i) - shift).exp().store(scores + i);
    }
    weight *= correction;
    for (int64_t i = 0; i < count; ++i) {
      weight += scores[i];
    }
    for (int64_t start = 0; start < how.padded; start += kChunk) {
      Chunk sum = load_full(values + start) * Vec(correction);
      for (int64_t i = 0; i < count; ++i) {
        const Vec share(scores[i]);
        add_product(sum, {share, share}, load_full(tile + i * how.padded + start));
      }
      store_full(values + start, sum);
    }
  }
};

// Memory of one thread.
struct Scratch {
  explicit Scratch(const Attention& how)
      : queries(how.heads * how.padded), values(how.heads * how.padded), keys(kTile * how.padded),
        rows(kTile * how.padded), sums(how.heads) {}

  std::vector<float> queries, values, keys, rows;
  std::vector<Sum> sums;
};

// The heads of queries that share a head of keys, of one token, which sees the keys from `first` to `end`.
template <typename T>
inline void attend(
    const Attention& how,
    const T* query,
    int64_t query_stride,
    const Pages<T>& keys,
    const Pages<T>& values,
    int64_t first,
    int64_t end,
    Scratch& scratch,
    T* result) {
  for (int64_t head = 0; head < how.heads; ++head) {
    for_chunks(how.size, [&](int64_t start, int64_t length) C10_ALWAYS_INLINE_ATTRIBUTE {
      store_full(&scratch.queries[head * how.padded + start], load(query + head * query_stride + start, length));
    });
    scratch.sums[head] = Sum();
  }
  std::fill(scratch.values.begin(), scratch.values.end(), 0.0f);
  float scores[kTile];
  for (int64_t index = first; index < end; index += kTile) {
    const int64_t count = std::min(kTile, end - index);
    widen(keys, index, count, how, scratch.keys.data());
    widen(values, index, count, how, scratch.rows.data());
    for (int64_t head = 0; head < how.heads; ++head) {
      const int64_t place = head * how.padded;
      const float greatest = score(how, &scratch.queries[place], scratch.keys.data(), count, scores);
      // What lies behind, of other keys, is not to be in the way of a vector.
      std::fill(scores + count, scores + kTile, 0.0f);
      scratch.sums[head].add(how, greatest, scores, scratch.rows.data(), count, &scratch.values[place]);
    }
  }
  for (int64_t head = 0; head < how.heads; ++head) {
    // Without a key the sums are 0 and stay so.
    const Vec weight(first < end ? scratch.sums[head].weight : 1.0f);
    for_chunks(how.size, [&](int64_t start, int64_t length) C10_ALWAYS_INLINE_ATTRIBUTE {
      const Chunk sum = load_full(&scratch.values[head * how.padded + start]);
      store(result + head * how.size + start, {sum.low / weight, sum.high / weight}, length);
    });
  }
}

// Where sequences are, checked: contiguous int64.
struct Sequences {
  at::Tensor blocks, lengths, starts;

  // The sequence of each token; -1: none.
  std::vector<int64_t> of_tokens(int64_t tokens, int64_t block_size, int64_t block_count) const {
    const char* op = "paged_attention";
    const int64_t *table = blocks.const_data_ptr<int64_t>(), *start = starts.const_data_ptr<int64_t>();
    const int64_t* length = lengths.const_data_ptr<int64_t>();
    const int64_t count = lengths.numel(), width = blocks.size(1);
    TORCH_CHECK_INDEX(start[0] == 0, "vllm_ir_cpu.", op, ": query_start must begin with 0, got ", start[0]);
    std::vector<int64_t> sequences(tokens, -1);
    for (int64_t i = 0; i < count; ++i) {
      TORCH_CHECK_INDEX(
          start[i] <= start[i + 1] && start[i + 1] <= tokens,
          "vllm_ir_cpu.", op, ": query_start must not decrease, nor exceed the ", tokens, " tokens of query; sequence ", i,
          " has ", start[i], " to ", start[i + 1]);
      TORCH_CHECK_INDEX(
          length[i] <= width * block_size,
          "vllm_ir_cpu.", op, ": sequence ", i, " has ", length[i], " tokens, but its row of block_table has place for ",
          width * block_size);
      for (int64_t block = 0; block * block_size < length[i]; ++block) {
        const int64_t number = table[i * width + block];
        TORCH_CHECK_INDEX(
            0 <= number && number < block_count,
            "vllm_ir_cpu.", op, ": block ", number, " of sequence ", i, " is not in the cache, which has ", block_count);
      }
      std::fill(sequences.begin() + start[i], sequences.begin() + start[i + 1], i);
    }
    return sequences;
  }
};

inline at::Tensor as_numbers(const char* name, const at::Tensor& tensor, int64_t dims) {
  TORCH_CHECK(
      (tensor.scalar_type() == at::kLong || tensor.scalar_type() == at::kInt) && tensor.dim() == dims && tensor.is_cpu(),
      "vllm_ir_cpu.paged_attention: ", name, " must be int64 or int32 with ", dims, " dimensions on the cpu, got ",
      tensor.scalar_type(), " of shape ", tensor.sizes(), " on ", tensor.device());
  return tensor.to(at::kLong).contiguous();
}

inline void check_attention(
    const at::Tensor& query, const at::Tensor& key_cache, const at::Tensor& value_cache, const Sequences& sequences) {
  const char* op = "paged_attention";
  check_rows(op, "query", query);
  for (const at::Tensor& cache : {key_cache, value_cache}) {
    TORCH_CHECK(
        query.dim() == 3 && cache.dim() == 4 && cache.scalar_type() == query.scalar_type() &&
            cache.sizes() == key_cache.sizes() && cache.size(3) == query.size(2) && cache.size(1) > 0 &&
            cache.size(2) > 0 && query.size(1) % cache.size(2) == 0 && query.is_cpu() && cache.is_cpu(),
        "vllm_ir_cpu.", op, ": for a query of [tokens, heads, head_size], caches must be [blocks, block_size, kv_heads, ",
        "head_size] of its dtype on the cpu, with a kv_heads that divides heads; got ", query.scalar_type(), " of shape ",
        query.sizes(), " and ", cache.scalar_type(), " of shape ", cache.sizes(), " on ", cache.device());
  }
  const int64_t count = sequences.lengths.numel();
  TORCH_CHECK(
      sequences.blocks.size(0) == count && sequences.starts.numel() == count + 1,
      "vllm_ir_cpu.", op, ": for the ", count, " sequences of seq_lens, block_table must have ", count,
      " rows and query_start ", count + 1, " elements; got shapes ", sequences.blocks.sizes(), " and ",
      sequences.starts.sizes());
}

template <typename T>
inline void attend_all(
    Attention how,
    const at::Tensor& query,
    const at::Tensor& key_cache,
    const at::Tensor& value_cache,
    const Sequences& places,
    const at::Tensor& result) {
  const int64_t tokens = query.size(0), block_size = key_cache.size(1), kv_heads = key_cache.size(2);
  const std::vector<int64_t> sequences = places.of_tokens(tokens, block_size, key_cache.size(0));
  const int64_t *table = places.blocks.const_data_ptr<int64_t>(), *starts = places.starts.const_data_ptr<int64_t>();
  const int64_t* lengths = places.lengths.const_data_ptr<int64_t>();
  const T *queries = query.const_data_ptr<T>(), *keys = key_cache.const_data_ptr<T>();
  const T* values = value_cache.const_data_ptr<T>();
  T* to = result.mutable_data_ptr<T>();
  int64_t work = 0; // products of two rows
  for (int64_t token = 0; token < tokens; ++token) {
    work += sequences[token] < 0 ? 0 : std::min(how.window, std::max<int64_t>(lengths[sequences[token]], 0));
  }
  const int64_t items = tokens * kv_heads, average = work / std::max<int64_t>(tokens, 1) + 1;
  in_parallel(items, average * how.heads * how.padded, [&](int64_t begin, int64_t end) {
    Scratch scratch(how);
    for (int64_t item = begin; item < end; ++item) {
      const int64_t token = item / kv_heads, head = item % kv_heads, sequence = std::max<int64_t>(sequences[token], 0);
      const int64_t behind =
          sequences[token] < 0 ? 0 : std::max<int64_t>(0, lengths[sequence] - starts[sequence + 1] + token + 1);
      const int64_t* blocks = table + sequence * places.blocks.size(1);
      attend<T>(
          how,
          queries + token * query.stride(0) + head * how.heads * query.stride(1),
          query.stride(1),
          {keys + head * key_cache.stride(2), blocks, block_size, key_cache.stride(0), key_cache.stride(1)},
          {values + head * value_cache.stride(2), blocks, block_size, value_cache.stride(0), value_cache.stride(1)},
          std::max<int64_t>(0, behind - how.window),
          behind,
          scratch,
          to + item * how.heads * how.size);
    }
  });
}

inline at::Tensor paged_attention(
    const at::Tensor& query,
    const at::Tensor& key_cache,
    const at::Tensor& value_cache,
    const at::Tensor& block_table,
    const at::Tensor& seq_lens,
    const at::Tensor& query_start,
    double scale,
    std::optional<int64_t> sliding_window,
    std::optional<double> soft_cap) {
  const char* op = "paged_attention";
  const Sequences places{
      as_numbers("block_table", block_table, 2), as_numbers("seq_lens", seq_lens, 1),
      as_numbers("query_start", query_start, 1)};
  check_attention(query, key_cache, value_cache, places);
  TORCH_CHECK(
      (!sliding_window || *sliding_window > 0) && (!soft_cap || *soft_cap > 0),
      "vllm_ir_cpu.", op, ": sliding_window and soft_cap must be positive, got ", sliding_window.value_or(0), " and ",
      soft_cap.value_or(0));
  const int64_t size = query.size(2);
  const Attention how{
      query.size(1) / key_cache.size(2),
      size,
      (size + kChunk - 1) / kChunk * kChunk,
      static_cast<float>(scale),
      sliding_window.value_or(std::numeric_limits<int64_t>::max()),
      static_cast<float>(soft_cap.value_or(0))};
  const at::Tensor result = at::empty(query.sizes(), query.options());
  const at::Tensor in = with_dense_rows(query);
  const at::Tensor keys = with_dense_rows(key_cache), values = with_dense_rows(value_cache);
  with_type(query.scalar_type(), [&](auto zero) {
    attend_all<decltype(zero)>(how, in, keys, values, places, result);
  });
  return result;
}

} // namespace vllm_ir
