// Rotary position embedding together with the norms before it, and with the write to a paged cache behind it: a token's
// heads are read and written once. Bit for bit what the kernels give one after the other.
#pragma once

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "kv_cache.h"
#include "rms_norm.h"
#include "rotary_embedding.h"

namespace vllm_ir {

// `[tokens..., columns]`, new.
inline at::Tensor empty_piece(const at::Tensor& qkv, int64_t columns) {
  auto sizes = qkv.sizes().vec();
  sizes.back() = columns;
  return at::empty(sizes, qkv.options());
}

// A weight in the dtype of a head, or undefined.
inline at::Tensor head_weight(
    const char* op, const char* name, const std::optional<at::Tensor>& weight, const at::Tensor& qkv, int64_t head_size) {
  if (!weight || !weight->defined()) {
    return {};
  }
  check_rows(op, name, *weight);
  TORCH_CHECK(
      weight->dim() == 1 && weight->size(0) == head_size && weight->is_cpu() &&
          c10::promoteTypes(qkv.scalar_type(), weight->scalar_type()) == qkv.scalar_type(),
      "vllm_ir_cpu.", op, ": ", name, " must have shape [", head_size, "], lie on the cpu and leave heads ",
      qkv.scalar_type(), "; got ", weight->scalar_type(), " of shape ", weight->sizes(), " on ", weight->device());
  return weight->to(qkv.scalar_type()).contiguous();
}

inline std::tuple<at::Tensor, at::Tensor, at::Tensor> qk_norm_rope(
    const at::Tensor& qkv,
    const at::Tensor& positions,
    const std::optional<at::Tensor>& q_weight,
    const std::optional<at::Tensor>& k_weight,
    double epsilon,
    int64_t num_heads,
    int64_t num_kv_heads,
    int64_t head_size,
    const at::Tensor& cos_sin_cache,
    bool is_neox) {
  const char* op = "qk_norm_rope";
  check_rows(op, "qkv", qkv);
  const Rotation rotation = rotation_of(op, positions, head_size, cos_sin_cache, is_neox);
  const int64_t q_size = num_heads * head_size, k_size = num_kv_heads * head_size, tokens = rotation.positions.numel();
  TORCH_CHECK(
      num_heads > 0 && num_kv_heads > 0 && qkv.size(-1) == q_size + 2 * k_size && qkv.numel() == tokens * qkv.size(-1),
      "vllm_ir_cpu.", op, ": qkv must hold ", num_heads, " heads and twice ", num_kv_heads, ", of ", head_size,
      " elements, for each of ", tokens, " tokens; got shape ", qkv.sizes());
  const at::Tensor q_scales = head_weight(op, "q_weight", q_weight, qkv, head_size);
  const at::Tensor k_scales = head_weight(op, "k_weight", k_weight, qkv, head_size);
  check_positions(op, rotation);
  const Norm norm{head_size, head_size, static_cast<float>(epsilon)};
  const at::Tensor query = empty_piece(qkv, q_size), key = empty_piece(qkv, k_size), value = empty_piece(qkv, k_size);
  const at::Tensor in = with_dense_rows(qkv);
  const Rows rows(in);
  with_type(in.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const T* from = in.const_data_ptr<T>();
    const T* q_weights = q_scales.defined() ? q_scales.const_data_ptr<T>() : nullptr;
    const T* k_weights = k_scales.defined() ? k_scales.const_data_ptr<T>() : nullptr;
    T *q_to = query.mutable_data_ptr<T>(), *k_to = key.mutable_data_ptr<T>(), *v_to = value.mutable_data_ptr<T>();
    in_parallel(tokens, qkv.size(-1), [&](int64_t begin, int64_t end) {
      Turns<T> turns(rotation);
      const auto turn_heads = [&](const T* heads, const T* weights, T* to, int64_t size) {
        for (int64_t start = 0; start < size; start += head_size) {
          const T* head = heads + start;
          T* target = to + start;
          normalize<T>(
              norm,
              weights,
              [&](int64_t first, int64_t count) C10_ALWAYS_INLINE_ATTRIBUTE { return load(head + first, count); },
              [&](int64_t first, int64_t count, const Chunk&, const Chunk& normed) C10_ALWAYS_INLINE_ATTRIBUTE {
                store(target + first, normed, count);
              });
          turns.rotate(target);
        }
      };
      for (int64_t token = begin; token < end; ++token) {
        const T* row = from + rows.offset(token);
        turns.read(token);
        turn_heads(row, q_weights, q_to + token * q_size, q_size);
        turn_heads(row + q_size, k_weights, k_to + token * k_size, k_size);
        std::memcpy(v_to + token * k_size, row + q_size + k_size, k_size * sizeof(T));
      }
    });
  });
  return {query, key, value};
}

// Whether each token is the last one of its slot: those that are can be written in any order.
inline std::vector<char> last_of_slots(const int64_t* slots, int64_t tokens) {
  std::vector<char> last(tokens);
  std::unordered_set<int64_t> taken;
  taken.reserve(tokens);
  for (int64_t token = tokens - 1; token >= 0; --token) {
    last[token] = slots[token] >= 0 && taken.insert(slots[token]).second;
  }
  return last;
}

// `[tokens, heads, size]`, of a tensor that may lack the dimension of heads.
inline at::Tensor with_heads(const char* op, const char* name, const at::Tensor& rows, const at::Tensor& cache) {
  const at::Tensor dense = with_dense_rows(rows);
  if (dense.dim() != 2) {
    return dense;
  }
  TORCH_CHECK(
      cache.dim() == 4 && cache.size(2) > 0 && dense.size(1) % cache.size(2) == 0,
      "vllm_ir_cpu.", op, ": ", name, " must hold whole heads of ", name, "_cache, got shapes ", rows.sizes(), " and ",
      cache.sizes());
  return dense.unflatten(1, {cache.size(2), dense.size(1) / cache.size(2)});
}

// Everything is checked before the first element is written.
inline void rope_and_cache_(
    const at::Tensor& positions,
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const at::Tensor& key_cache,
    const at::Tensor& value_cache,
    const at::Tensor& slot_mapping,
    int64_t head_size,
    const at::Tensor& cos_sin_cache,
    bool is_neox) {
  const char* op = "rope_and_cache_";
  const Rotation rotation = rotation_of(op, positions, head_size, cos_sin_cache, is_neox);
  check_heads(op, "query", query, rotation);
  check_heads(op, "key", key, rotation);
  check_rows(op, "value", value);
  TORCH_CHECK(
      query.scalar_type() == key.scalar_type(),
      "vllm_ir_cpu.", op, ": query and key must have one dtype, got ", query.scalar_type(), " and ", key.scalar_type());
  const at::Tensor slots = checked_slots(op, slot_mapping);
  const int64_t tokens = slots.numel();
  TORCH_CHECK(
      tokens == rotation.positions.numel(),
      "vllm_ir_cpu.", op, ": there must be a slot for each of ", rotation.positions.numel(), " positions, got ", tokens);
  const at::Tensor dense_query = with_dense_rows(query), dense_key = with_dense_rows(key);
  const at::Tensor keys = with_heads(op, "key", dense_key, key_cache);
  const at::Tensor values = with_heads(op, "value", value, value_cache);
  check_caches(op, keys, values, key_cache, value_cache, tokens);
  check_positions(op, rotation);
  check_numbers(op, slots, key_cache.size(0) * key_cache.size(1));
  for (const at::Tensor& written : {query, key_cache, value_cache}) {
    at::assert_no_overlap(written, cos_sin_cache);
    at::assert_no_overlap(written, key);
  }
  at::assert_no_overlap(key, cos_sin_cache);
  for (const at::Tensor& written : {key_cache, value_cache, value}) {
    at::assert_no_overlap(query, written);
  }
  at::assert_no_overlap(key, value);
  const at::Tensor dense_key_cache = with_dense_rows(key_cache), dense_value_cache = with_dense_rows(value_cache);
  const int64_t* numbers = slots.const_data_ptr<int64_t>();
  const std::vector<char> last = last_of_slots(numbers, tokens);
  with_type(query.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const Heads<T> query_heads(dense_query, rotation), key_heads(dense_key, rotation);
    const SlotWriter key_writer(keys, dense_key_cache), value_writer(values, dense_value_cache);
    const int64_t elements = (query_heads.of_token() + 2 * key_heads.of_token()) * head_size;
    in_parallel(tokens, elements, [&](int64_t begin, int64_t end) {
      Turns<T> turns(rotation);
      for (int64_t token = begin; token < end; ++token) {
        turns.read(token);
        query_heads.rotate(token, turns);
        key_heads.rotate(token, turns);
        if (last[token]) {
          key_writer.write(token, numbers[token]);
          value_writer.write(token, numbers[token]);
        }
      }
    });
  });
  write_back(query, dense_query);
  write_back(key, dense_key);
  write_back(key_cache, dense_key_cache);
  write_back(value_cache, dense_value_cache);
}

} // namespace vllm_ir
