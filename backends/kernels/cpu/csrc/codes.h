// The 8-bit dtypes that the kernels quantise to: float32 vectors to codes, and to memory.
//
// Both dtypes are rounded by an addition: the sum of a number and a power of two large enough keeps, in its last bits, the
// number rounded to nearest even as a multiple of what these bits stand for.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/Float8_e4m3fn.h>

#include "chunks.h"

namespace vllm_ir {

using Bits = at::vec::Vectorized<int32_t>;

C10_ALWAYS_INLINE Bits bits_of(const Vec& values) {
  return at::vec::cast<int32_t>(values);
}

struct Fp8 {
  using Element = at::Float8_e4m3fn;
  static constexpr at::ScalarType kType = at::kFloat8_e4m3fn;
  static constexpr float kLeast = -448.0f, kMost = 448.0f;

  // Of numbers in range, and NaN: a sign, 4 bits of exponent with bias 7, 3 bits of mantissa.
  C10_ALWAYS_INLINE static Bits codes(const Vec& values) {
    const Bits bits = bits_of(values);
    const Bits magnitude = bits & Bits(0x7fffffff);
    // The mantissa loses 20 bits, the bias becomes less by 120; what is carried goes to the exponent.
    const Bits last_kept = (magnitude >> Bits(20)) & Bits(1);
    const Bits normal = ((magnitude + Bits(0x7ffff) + last_kept) >> Bits(20)) - Bits(120 << 3);
    // Below 2^-6 numbers are multiples of 2^-9, which is the last bit of 2^14. Eight of them have the code of 2^-6.
    const Vec shift(16384.0f);
    const Bits subnormal = bits_of(values.abs() + shift) - bits_of(shift);
    const Bits number = Bits::blendv(normal, subnormal, magnitude < Bits(0x3c800000));
    const Bits code = Bits::blendv(number, Bits(0x7f), magnitude > Bits(0x7f800000));
    return code | ((bits >> Bits(24)) & Bits(0x80));
  }
};

struct Int8 {
  using Element = int8_t;
  static constexpr at::ScalarType kType = at::kChar;
  static constexpr float kLeast = -128.0f, kMost = 127.0f;

  // Of numbers in range, in the last 8 bits; NaN is 0.
  C10_ALWAYS_INLINE static Bits codes(const Vec& values) {
    const Vec numbers = Vec::blendv(values, Vec(0), values.isnan());
    // Half as much again, so that negative numbers do not leave the binade.
    return bits_of(numbers + Vec(12582912.0f));
  }
};

template <typename Dtype>
C10_ALWAYS_INLINE Bits clamped_codes(const Vec& values) {
  return Dtype::codes(at::vec::clamp(values, Vec(Dtype::kLeast), Vec(Dtype::kMost)));
}

// The first `count` numbers, clamped to the range of the dtype and rounded.
template <typename Dtype>
C10_ALWAYS_INLINE void store_codes(typename Dtype::Element* to, const Chunk& chunk, int64_t count) {
  static_assert(sizeof(typename Dtype::Element) == 1);
  int32_t codes[kChunk];
  clamped_codes<Dtype>(chunk.low).store(codes);
  clamped_codes<Dtype>(chunk.high).store(codes + kVec);
  uint8_t bytes[kChunk];
  for (int64_t i = 0; i < kChunk; ++i) {
    bytes[i] = static_cast<uint8_t>(codes[i]);
  }
  std::memcpy(to, bytes, count);
}

} // namespace vllm_ir
