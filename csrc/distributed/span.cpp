// csrc/distributed/span.cpp: cuts spans; see span.h.
#include "csrc/distributed/span.h"

#include <algorithm>

namespace ocl::distributed {

Span Span::seen_as(at::ScalarType other) const {
  Span result = *this;
  result.dtype = other;
  result.count = count * static_cast<int64_t>(element_bytes()) / static_cast<int64_t>(at::elementSize(other));
  return result;
}

Span Span::slice(int64_t start, int64_t most) const {
  Span result = *this;
  start = std::min(start, count);
  result.address += start * static_cast<int64_t>(element_bytes());
  result.count = std::min(most, count - start);
  return result;
}

Span span_of(const at::Tensor& tensor) {
  Span span;
  span.dtype = tensor.scalar_type();
  span.count = tensor.numel();
  span.device = &runtime::Device::get(tensor.device().index());
  const auto* storage = static_cast<const char*>(tensor.storage().data());
  span.address = const_cast<char*>(storage) + tensor.storage_offset() * static_cast<int64_t>(tensor.element_size());
  return span;
}

}  // namespace ocl::distributed
