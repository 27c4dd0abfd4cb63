// Rotary position embedding of queries and keys, in place. Bit for bit the native definition: every product and every
// sum is rounded to the dtype of what is rotated.
#pragma once

#include <ATen/MemoryOverlap.h>

#include <vector>

#include "chunks.h"
#include "rows.h"

namespace vllm_ir {

// One row of the table, rounded to T: cosines in the first half of `turn`, sines in the second.
template <typename T, typename C>
inline void read_turn(const C* row, float* turn, int64_t rotary_dim) {
  for_chunks(rotary_dim, [&](int64_t start, int64_t count) C10_ALWAYS_INLINE_ATTRIBUTE {
    store(turn + start, rounded<T>(load(row + start, count)), count);
  });
}

// Pairs (i, i + half): GPT-NeoX.
template <typename T>
inline void rotate_halves(T* head, const float* turn, int64_t half) {
  for_chunks(half, [&](int64_t start, int64_t count) C10_ALWAYS_INLINE_ATTRIBUTE {
    const Chunk left = load(head + start, count), right = load(head + half + start, count);
    const Chunk cos = load(turn + start, count), sin = load(turn + half + start, count);
    store(head + start, rounded<T>(left * cos) - rounded<T>(right * sin), count);
    store(head + half + start, rounded<T>(right * cos) + rounded<T>(left * sin), count);
  });
}

// Pairs (2 * i, 2 * i + 1): GPT-J.
template <typename T>
inline void rotate_neighbours(T* head, const float* turn, int64_t half) {
  for_chunks(2 * half, [&](int64_t start, int64_t count) C10_ALWAYS_INLINE_ATTRIBUTE {
    const Chunk pairs = load(head + start, count);
    const Vec cos = load(turn + start / 2, count / 2).low, sin = load(turn + half + start / 2, count / 2).low;
    const auto [left, right] = at::vec::deinterleave2(pairs.low, pairs.high);
    const Chunk first = rounded<T>({left * cos, right * sin}), second = rounded<T>({right * cos, left * sin});
    const auto [low, high] = at::vec::interleave2(first.low - first.high, second.low + second.high);
    store(head + start, {low, high}, count);
  });
}

struct Rotation {
  at::Tensor positions; // [tokens], int64, each a row of the table
  at::Tensor table; // [rows, rotary_dim], rows dense
  int64_t head_size;
  bool is_neox;
};

// The table's rows for the tokens, one at a time, rounded to T.
template <typename T>
class Turns {
 public:
  explicit Turns(const Rotation& rotation)
      : table_(rotation.table),
        rows_(rotation.table),
        positions_(rotation.positions.const_data_ptr<int64_t>()),
        turn_(rotation.table.size(1)),
        is_neox_(rotation.is_neox) {}

  void read(int64_t token) {
    with_type(table_.scalar_type(), [&](auto zero) {
      const auto* table = table_.const_data_ptr<decltype(zero)>();
      read_turn<T>(table + rows_.offset(positions_[token]), turn_.data(), turn_.size());
    });
  }

  // By the turn that was read last.
  void rotate(T* head) const {
    const int64_t half = turn_.size() / 2;
    if (is_neox_) {
      rotate_halves(head, turn_.data(), half);
    } else {
      rotate_neighbours(head, turn_.data(), half);
    }
  }

 private:
  const at::Tensor& table_;
  Rows rows_;
  const int64_t* positions_;
  std::vector<float> turn_;
  bool is_neox_;
};

// Where heads start in a tensor with dense rows. They count in row-major order, and each token has as many as the next.
template <typename T>
class Heads {
 public:
  Heads(const at::Tensor& x, const Rotation& rotation)
      : rows_(x),
        data_(x.mutable_data_ptr<T>()),
        size_(rotation.head_size),
        in_row_(x.size(-1) / rotation.head_size),
        of_token_(rows_.count() * in_row_ / std::max<int64_t>(rotation.positions.numel(), 1)) {}

  int64_t of_token() const {
    return of_token_;
  }

  void rotate(int64_t token, const Turns<T>& turns) const {
    for (int64_t head = token * of_token_; head < (token + 1) * of_token_; ++head) {
      turns.rotate(data_ + rows_.offset(head / in_row_) + head % in_row_ * size_);
    }
  }

 private:
  Rows rows_;
  T* data_;
  int64_t size_, in_row_, of_token_;
};

template <typename T>
inline void rotate_heads(const at::Tensor& x, const Rotation& rotation) {
  const Heads<T> heads(x, rotation);
  in_parallel(
      rotation.positions.numel(), heads.of_token() * rotation.table.size(1), [&](int64_t begin, int64_t end) {
        Turns<T> turns(rotation);
        for (int64_t token = begin; token < end; ++token) {
          turns.read(token);
          heads.rotate(token, turns);
        }
      });
}

inline void rotate(const at::Tensor& x, const Rotation& rotation) {
  const at::Tensor dense = with_dense_rows(x);
  with_type(x.scalar_type(), [&](auto zero) { rotate_heads<decltype(zero)>(dense, rotation); });
  write_back(x, dense);
}

inline void check_heads(const char* op, const char* name, const at::Tensor& x, const Rotation& rotation) {
  check_rows(op, name, x);
  const int64_t unit = rotation.head_size * std::max<int64_t>(rotation.positions.numel(), 1);
  TORCH_CHECK(
      x.is_cpu() && x.size(-1) % rotation.head_size == 0 && x.numel() % unit == 0,
      "vllm_ir_cpu.", op, ": ", name, " must hold whole heads of ", rotation.head_size, " elements for each of ",
      rotation.positions.numel(), " tokens, on the cpu; got shape ", x.sizes(), " on ", x.device());
  at::assert_no_internal_overlap(x);
}

inline void check_positions(const char* op, const Rotation& rotation) {
  const int64_t* numbers = rotation.positions.const_data_ptr<int64_t>();
  const int64_t rows = rotation.table.size(0);
  for (int64_t token = 0; token < rotation.positions.numel(); ++token) {
    TORCH_CHECK_INDEX(
        0 <= numbers[token] && numbers[token] < rows,
        "vllm_ir_cpu.", op, ": position ", numbers[token], " is not a row of cos_sin_cache, which has ", rows);
  }
}

// Checked, but for the positions' numbers: of several faults, one of shapes is told first.
inline Rotation rotation_of(
    const char* op, const at::Tensor& positions, int64_t head_size, const at::Tensor& cos_sin_cache, bool is_neox) {
  TORCH_CHECK(
      (positions.scalar_type() == at::kLong || positions.scalar_type() == at::kInt) && positions.is_cpu(),
      "vllm_ir_cpu.", op, ": positions must be int64 or int32 on the cpu, got ", positions.scalar_type(), " on ",
      positions.device());
  check_rows(op, "cos_sin_cache", cos_sin_cache);
  TORCH_CHECK(
      cos_sin_cache.dim() == 2 && cos_sin_cache.size(1) % 2 == 0 && cos_sin_cache.size(1) <= head_size &&
          head_size > 0 && cos_sin_cache.is_cpu(),
      "vllm_ir_cpu.", op, ": cos_sin_cache must have shape [positions, rotary_dim] with an even rotary_dim of at most ",
      "head_size ", head_size, ", on the cpu; got ", cos_sin_cache.sizes(), " on ", cos_sin_cache.device());
  return {positions.reshape({-1}).to(at::kLong).contiguous(), with_dense_rows(cos_sin_cache), head_size, is_neox};
}

// Everything is checked before the first element is written.
inline void rotary_embedding_(
    const at::Tensor& positions,
    const at::Tensor& query,
    const at::Tensor& key,
    int64_t head_size,
    const at::Tensor& cos_sin_cache,
    bool is_neox) {
  const char* op = "rotary_embedding_";
  const Rotation rotation = rotation_of(op, positions, head_size, cos_sin_cache, is_neox);
  check_heads(op, "query", query, rotation);
  check_heads(op, "key", key, rotation);
  check_positions(op, rotation);
  at::assert_no_overlap(query, key);
  at::assert_no_overlap(query, cos_sin_cache);
  at::assert_no_overlap(key, cos_sin_cache);
  rotate(query, rotation);
  rotate(key, rotation);
}

} // namespace vllm_ir
