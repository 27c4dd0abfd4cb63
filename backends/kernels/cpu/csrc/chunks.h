// Elements in memory, of any of the three dtypes, as float32 vectors.
//
// A chunk is what one step of a kernel works on: as many elements as fit into one vector of a 16-bit dtype, which are two
// vectors of float32. Every kernel loads chunks, computes in float32, and rounds where its native definition does. What works
// on chunks is always inlined: a call would pass them through memory, which costs more than the arithmetic.
#pragma once

#include <ATen/cpu/vec/functional.h>

#include <c10/macros/Macros.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace vllm_ir {

using Vec = at::vec::Vectorized<float>;

struct Chunk {
  Vec low;
  Vec high;
};

constexpr int64_t kVec = Vec::size();
constexpr int64_t kChunk = 2 * kVec;

C10_ALWAYS_INLINE Chunk operator+(const Chunk& a, const Chunk& b) {
  return {a.low + b.low, a.high + b.high};
}
C10_ALWAYS_INLINE Chunk operator-(const Chunk& a, const Chunk& b) {
  return {a.low - b.low, a.high - b.high};
}
C10_ALWAYS_INLINE Chunk operator*(const Chunk& a, const Chunk& b) {
  return {a.low * b.low, a.high * b.high};
}
C10_ALWAYS_INLINE Chunk operator*(const Chunk& a, const Vec& b) {
  return {a.low * b, a.high * b};
}

template <typename T>
C10_ALWAYS_INLINE Chunk load_full(const T* from) {
  if constexpr (std::is_same_v<T, float>) {
    return {Vec::loadu(from), Vec::loadu(from + kVec)};
  } else {
    static_assert(at::vec::Vectorized<T>::size() == kChunk);
    auto [low, high] = at::vec::convert_to_float<T>(at::vec::Vectorized<T>::loadu(from));
    return {low, high};
  }
}

template <typename T>
C10_ALWAYS_INLINE void store_full(T* to, const Chunk& chunk) {
  if constexpr (std::is_same_v<T, float>) {
    chunk.low.store(to);
    chunk.high.store(to + kVec);
  } else {
    at::vec::convert_from_float<T>(chunk.low, chunk.high).store(to);
  }
}

// `count` elements; zeros take the place of those that are missing, so that a sum over the chunk is one over the elements.
template <typename T>
C10_ALWAYS_INLINE Chunk load(const T* from, int64_t count) {
  if (count == kChunk) {
    return load_full(from);
  }
  T padded[kChunk] = {};
  std::memcpy(padded, from, count * sizeof(T));
  return load_full(padded);
}

// The first `count` elements, rounded to T.
template <typename T>
C10_ALWAYS_INLINE void store(T* to, const Chunk& chunk, int64_t count) {
  if (count == kChunk) {
    store_full(to, chunk);
    return;
  }
  T padded[kChunk];
  store_full(padded, chunk);
  std::memcpy(to, padded, count * sizeof(T));
}

// Rounded to bfloat16, the upper half of a float32, to nearest even.
C10_ALWAYS_INLINE Vec rounded_to_bfloat16(const Vec& values) {
  using Bits = at::vec::Vectorized<int32_t>;
  const Bits bits = at::vec::cast<int32_t>(values);
  const Bits last_kept = (bits >> Bits(16)) & Bits(1);
  const Bits upper = (bits + Bits(0x7fff) + last_kept) & Bits(static_cast<int32_t>(0xffff0000));
  return Vec::blendv(at::vec::cast<float>(upper), values, values.isnan());
}

// Rounded to T, and back in float32.
template <typename T>
C10_ALWAYS_INLINE Chunk rounded(const Chunk& chunk) {
  if constexpr (std::is_same_v<T, float>) {
    return chunk;
  } else if constexpr (std::is_same_v<T, at::BFloat16>) {
    return {rounded_to_bfloat16(chunk.low), rounded_to_bfloat16(chunk.high)};
  } else {
    auto [low, high] = at::vec::convert_to_float<T>(at::vec::convert_from_float<T>(chunk.low, chunk.high));
    return {low, high};
  }
}

// Call `body(start, count)` for every chunk of `size` elements. All but the last call have the constant kChunk for count,
// which removes the branches of load and store.
template <typename Body>
C10_ALWAYS_INLINE void for_chunks(int64_t size, Body body) {
  int64_t start = 0;
  for (; start + kChunk <= size; start += kChunk) {
    body(start, kChunk);
  }
  if (start < size) {
    body(start, size - start);
  }
}

} // namespace vllm_ir
