// Writing keys and values into the slots of a paged cache, in place. Elements are moved as bytes, whatever they are.
#pragma once

#include <ATen/MemoryOverlap.h>

#include <cstring>

#include "rows.h"

namespace vllm_ir {

inline void check_new_and_cache(
    const char* op, const char* name, const at::Tensor& rows, const at::Tensor& cache, int64_t tokens) {
  TORCH_CHECK(
      rows.dim() == 3 && cache.dim() == 4 && rows.size(0) == tokens && rows.size(1) == cache.size(2) &&
          rows.size(2) == cache.size(3) && rows.scalar_type() == cache.scalar_type() && rows.is_cpu() && cache.is_cpu(),
      "vllm_ir_cpu.", op, ": ", name, " must be [", tokens, ", kv_heads, head_size] and ", name,
      "_cache [blocks, block_size, kv_heads, head_size] of the same dtype, on the cpu; got ", rows.scalar_type(),
      " of shape ", rows.sizes(), " on ", rows.device(), " and ", cache.scalar_type(), " of shape ", cache.sizes(), " on ",
      cache.device());
  at::assert_no_internal_overlap(cache);
  at::assert_no_overlap(cache, rows);
}

inline void check_caches(
    const char* op,
    const at::Tensor& key,
    const at::Tensor& value,
    const at::Tensor& key_cache,
    const at::Tensor& value_cache,
    int64_t tokens) {
  check_new_and_cache(op, "key", key, key_cache, tokens);
  check_new_and_cache(op, "value", value, value_cache, tokens);
  TORCH_CHECK(
      value_cache.size(0) == key_cache.size(0) && value_cache.size(1) == key_cache.size(1),
      "vllm_ir_cpu.", op, ": key_cache and value_cache must have the same blocks and block_size, got shapes ",
      key_cache.sizes(), " and ", value_cache.sizes());
  at::assert_no_overlap(key_cache, value_cache);
  at::assert_no_overlap(key_cache, value);
  at::assert_no_overlap(value_cache, key);
}

// A dense copy, or the tensor itself.
inline at::Tensor checked_slots(const char* op, const at::Tensor& slot_mapping) {
  TORCH_CHECK(
      slot_mapping.scalar_type() == at::kLong && slot_mapping.dim() == 1 && slot_mapping.is_cpu(),
      "vllm_ir_cpu.", op, ": slot_mapping must be int64 of shape [tokens] on the cpu, got ", slot_mapping.scalar_type(),
      " of shape ", slot_mapping.sizes(), " on ", slot_mapping.device());
  return slot_mapping.contiguous();
}

inline void check_numbers(const char* op, const at::Tensor& slots, int64_t count) {
  const int64_t* numbers = slots.const_data_ptr<int64_t>();
  for (int64_t token = 0; token < slots.numel(); ++token) {
    TORCH_CHECK_INDEX(
        numbers[token] < count, "vllm_ir_cpu.", op, ": slot ", numbers[token], " is not in the cache, which has ", count);
  }
}

// Copies tokens into a cache. Tokens `[tokens, heads, size]` and cache `[blocks, block_size, heads, size]` have dense rows.
class SlotWriter {
 public:
  SlotWriter(const at::Tensor& rows, const at::Tensor& cache) {
    const int64_t heads = rows.size(1), element = rows.element_size(), bytes = rows.size(2) * element;
    const bool dense = heads <= 1 || (rows.stride(1) == rows.size(2) && cache.stride(2) == rows.size(2));
    pieces_ = dense ? 1 : heads;
    piece_ = dense ? heads * bytes : bytes;
    block_size_ = cache.size(1);
    from_ = static_cast<const char*>(rows.const_data_ptr());
    to_ = static_cast<char*>(cache.mutable_data_ptr());
    token_step_ = rows.stride(0) * element;
    head_step_ = rows.stride(1) * element;
    block_step_ = cache.stride(0) * element;
    offset_step_ = cache.stride(1) * element;
    cache_head_step_ = cache.stride(2) * element;
  }

  void write(int64_t token, int64_t slot) const {
    const char* source = from_ + token * token_step_;
    char* target = to_ + slot / block_size_ * block_step_ + slot % block_size_ * offset_step_;
    for (int64_t head = 0; head < pieces_; ++head) {
      std::memcpy(target + head * cache_head_step_, source + head * head_step_, piece_);
    }
  }

 private:
  const char* from_;
  char* to_;
  // In bytes.
  int64_t piece_, token_step_, head_step_, block_step_, offset_step_, cache_head_step_;
  int64_t pieces_, block_size_;
};

// Threads share the slots, not the tokens, so that of tokens with one slot the last is there.
inline void write_slots(const at::Tensor& rows, const at::Tensor& cache, const int64_t* slots) {
  const int64_t tokens = rows.size(0), elements = rows.numel();
  if (elements == 0) {
    return;
  }
  const SlotWriter writer(rows, cache);
  const int64_t shares = std::min<int64_t>(at::get_num_threads(), std::max<int64_t>(1, elements / kGrain));
  at::parallel_for(0, shares, 1, [&](int64_t begin, int64_t end) {
    for (int64_t token = 0; token < tokens; ++token) {
      const int64_t slot = slots[token], share = slot % shares;
      if (slot >= 0 && share >= begin && share < end) {
        writer.write(token, slot);
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
  const at::Tensor slots = checked_slots(op, slot_mapping);
  check_caches(op, key, value, key_cache, value_cache, slots.numel());
  check_numbers(op, slots, key_cache.size(0) * key_cache.size(1));
  for (const auto& [rows, cache] : {std::pair(key, key_cache), std::pair(value, value_cache)}) {
    const at::Tensor dense = with_dense_rows(cache);
    write_slots(with_dense_rows(rows), dense, slots.const_data_ptr<int64_t>());
    write_back(cache, dense);
  }
}

// Likewise. A row of the cache has a latent, and the rotated part of a key behind it.
inline void concat_and_cache_mla_(
    const at::Tensor& kv_c, const at::Tensor& k_pe, const at::Tensor& kv_cache, const at::Tensor& slot_mapping) {
  const char* op = "concat_and_cache_mla_";
  const at::Tensor slots = checked_slots(op, slot_mapping);
  for (const auto& [name, rows] : {std::pair("kv_c", kv_c), std::pair("k_pe", k_pe)}) {
    TORCH_CHECK(
        rows.dim() == 2 && rows.size(0) == slots.numel() && rows.scalar_type() == kv_cache.scalar_type() && rows.is_cpu(),
        "vllm_ir_cpu.", op, ": ", name, " must be [", slots.numel(), ", size] of the dtype of kv_cache, ",
        kv_cache.scalar_type(), ", on the cpu; got ", rows.scalar_type(), " of shape ", rows.sizes(), " on ",
        rows.device());
    at::assert_no_overlap(kv_cache, rows);
  }
  const int64_t latent = kv_c.size(1), rotated = k_pe.size(1);
  TORCH_CHECK(
      kv_cache.dim() == 3 && kv_cache.size(2) == latent + rotated && kv_cache.is_cpu(),
      "vllm_ir_cpu.", op, ": kv_cache must be [blocks, block_size, ", latent + rotated, "] on the cpu, got shape ",
      kv_cache.sizes(), " on ", kv_cache.device());
  at::assert_no_internal_overlap(kv_cache);
  check_numbers(op, slots, kv_cache.size(0) * kv_cache.size(1));
  const at::Tensor cache = with_dense_rows(kv_cache);
  const int64_t* numbers = slots.const_data_ptr<int64_t>();
  write_slots(with_dense_rows(kv_c).unsqueeze(1), cache.narrow(-1, 0, latent).unsqueeze(2), numbers);
  write_slots(with_dense_rows(k_pe).unsqueeze(1), cache.narrow(-1, latent, rotated).unsqueeze(2), numbers);
  write_back(kv_cache, cache);
}

} // namespace vllm_ir
