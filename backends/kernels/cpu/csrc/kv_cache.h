// Writing keys and values into the slots of a paged cache, in place. Elements are moved as bytes, whatever they are.
#pragma once

#include <ATen/MemoryOverlap.h>

#include <cstring>

#include "rows.h"

namespace vllm_ir {

inline void check_new_and_cache(const char* name, const at::Tensor& rows, const at::Tensor& cache, int64_t tokens) {
  TORCH_CHECK(
      rows.dim() == 3 && cache.dim() == 4 && rows.size(0) == tokens && rows.size(1) == cache.size(2) &&
          rows.size(2) == cache.size(3) && rows.scalar_type() == cache.scalar_type() && rows.is_cpu() && cache.is_cpu(),
      "vllm_ir_cpu.reshape_and_cache_: ", name, " must be [", tokens, ", kv_heads, head_size] and ", name,
      "_cache [blocks, block_size, kv_heads, head_size] of the same dtype, on the cpu; got ", rows.scalar_type(),
      " of shape ", rows.sizes(), " on ", rows.device(), " and ", cache.scalar_type(), " of shape ", cache.sizes(), " on ",
      cache.device());
  at::assert_no_internal_overlap(cache);
  at::assert_no_overlap(cache, rows);
}

// Both with dense rows. Threads share the slots, not the tokens, so that of tokens with one slot the last is there.
inline void write_slots(const at::Tensor& rows, const at::Tensor& cache, const int64_t* slots) {
  const int64_t tokens = rows.size(0), heads = rows.size(1), element = rows.element_size();
  const int64_t bytes = rows.size(2) * element, block_size = cache.size(1);
  const bool dense = heads <= 1 || (rows.stride(1) == rows.size(2) && cache.stride(2) == rows.size(2));
  const int64_t pieces = dense ? 1 : heads, piece = dense ? heads * bytes : bytes;
  const char* from = static_cast<const char*>(rows.const_data_ptr());
  char* to = static_cast<char*>(cache.mutable_data_ptr());
  const int64_t elements = rows.numel();
  if (elements == 0) {
    return;
  }
  const int64_t shares = std::min<int64_t>(at::get_num_threads(), std::max<int64_t>(1, elements / kGrain));
  at::parallel_for(0, shares, 1, [&](int64_t begin, int64_t end) {
    for (int64_t token = 0; token < tokens; ++token) {
      const int64_t slot = slots[token], share = slot % shares;
      if (slot < 0 || share < begin || share >= end) {
        continue;
      }
      const char* source = from + token * rows.stride(0) * element;
      char* target = to + (slot / block_size * cache.stride(0) + slot % block_size * cache.stride(1)) * element;
      for (int64_t head = 0; head < pieces; ++head) {
        std::memcpy(target + head * cache.stride(2) * element, source + head * rows.stride(1) * element, piece);
      }
    }
  });
}

// Everything is checked before the first element is written.
inline void reshape_and_cache_(
    const at::Tensor& key,
    const at::Tensor& value,
    const at::Tensor& key_cache,
    const at::Tensor& value_cache,
    const at::Tensor& slot_mapping) {
  const char* op = "reshape_and_cache_";
  TORCH_CHECK(
      slot_mapping.scalar_type() == at::kLong && slot_mapping.dim() == 1 && slot_mapping.is_cpu(),
      "vllm_ir_cpu.", op, ": slot_mapping must be int64 of shape [tokens] on the cpu, got ", slot_mapping.scalar_type(),
      " of shape ", slot_mapping.sizes(), " on ", slot_mapping.device());
  const at::Tensor slots = slot_mapping.contiguous();
  check_new_and_cache("key", key, key_cache, slots.numel());
  check_new_and_cache("value", value, value_cache, slots.numel());
  const int64_t count = key_cache.size(0) * key_cache.size(1);
  TORCH_CHECK(
      value_cache.size(0) == key_cache.size(0) && value_cache.size(1) == key_cache.size(1),
      "vllm_ir_cpu.", op, ": key_cache and value_cache must have the same blocks and block_size, got shapes ",
      key_cache.sizes(), " and ", value_cache.sizes());
  at::assert_no_overlap(key_cache, value_cache);
  at::assert_no_overlap(key_cache, value);
  at::assert_no_overlap(value_cache, key);
  const int64_t* numbers = slots.const_data_ptr<int64_t>();
  for (int64_t token = 0; token < slots.numel(); ++token) {
    TORCH_CHECK_INDEX(
        numbers[token] < count, "vllm_ir_cpu.", op, ": slot ", numbers[token], " is not in the cache, which has ", count);
  }
  for (const auto& [rows, cache] : {std::pair(key, key_cache), std::pair(value, value_cache)}) {
    const at::Tensor dense = with_dense_rows(cache);
    write_slots(with_dense_rows(rows), dense, numbers);
    write_back(cache, dense);
  }
}

} // namespace vllm_ir
