// The rows of tensors of any rank and strides, and what the kernels require of their arguments.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <optional>

namespace vllm_ir {

// Where each row of a tensor starts: a row is the last dimension, and rows count in row-major order of the others.
class Rows {
 public:
  explicit Rows(const at::Tensor& tensor) {
    for (int64_t dim = tensor.dim() - 2; dim >= 0; --dim) {
      const int64_t size = tensor.size(dim), stride = tensor.stride(dim);
      count_ *= size;
      if (size == 1) {
        continue;
      }
      if (!sizes_.empty() && stride == strides_.back() * sizes_.back()) {
        sizes_.back() *= size; // steps on where the dimension inside it ends
      } else {
        sizes_.push_back(size);
        strides_.push_back(stride);
      }
    }
  }

  int64_t count() const {
    return count_;
  }

  // In elements from the tensor's first.
  int64_t offset(int64_t row) const {
    if (sizes_.empty()) {
      return 0;
    }
    int64_t offset = 0;
    for (size_t dim = 0; dim + 1 < sizes_.size(); ++dim) {
      offset += row % sizes_[dim] * strides_[dim];
      row /= sizes_[dim];
    }
    return offset + row * strides_.back();
  }

 private:
  int64_t count_ = 1;
  // Innermost first.
  c10::SmallVector<int64_t, 4> sizes_;
  c10::SmallVector<int64_t, 4> strides_;
};

// The tensor itself where the elements of a row are neighbours, else a contiguous copy.
inline at::Tensor with_dense_rows(const at::Tensor& tensor) {
  return tensor.size(-1) <= 1 || tensor.stride(-1) == 1 ? tensor : tensor.contiguous();
}

// The end of an in-place kernel that worked on `with_dense_rows(tensor)`.
inline void write_back(const at::Tensor& tensor, const at::Tensor& worked_on) {
  if (!tensor.is_same(worked_on)) {
    tensor.copy_(worked_on);
  }
}

// Elements that are worth a thread; torch's own kernels use this number.
constexpr int64_t kGrain = 32768;

// Call `body(begin, end)` for ranges of `count` items of `size` elements, on as many threads as the work is worth.
template <typename Body>
inline void in_parallel(int64_t count, int64_t size, Body body) {
  if (count > 0 && size > 0) {
    at::parallel_for(0, count, std::max<int64_t>(1, kGrain / size), body);
  }
}

inline bool is_supported(at::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

// Call `body` with a value of the C++ type that stands for a supported dtype.
template <typename Body>
inline void with_type(at::ScalarType type, Body body) {
  if (type == at::kFloat) {
    body(float());
  } else if (type == at::kBFloat16) {
    body(at::BFloat16());
  } else {
    TORCH_INTERNAL_ASSERT(type == at::kHalf);
    body(at::Half());
  }
}

inline void check_rows(const char* op, const char* name, const at::Tensor& tensor) {
  TORCH_CHECK(
      tensor.dim() > 0 && is_supported(tensor.scalar_type()),
      "vllm_ir_cpu.", op, ": ", name, " must be float32, bfloat16 or float16 with a last dimension, got ",
      tensor.scalar_type(), " of shape ", tensor.sizes());
}

} // namespace vllm_ir
