// csrc/distributed/span.h: a tensor as a run of elements in device memory.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "csrc/runtime/device/device.h"

namespace ocl::distributed {

/// The elements of a dense tensor in the order of its memory.
struct Span {
  runtime::Device* device = nullptr;
  char* address = nullptr;
  int64_t count = 0;
  at::ScalarType dtype = at::kByte;

  size_t element_bytes() const { return at::elementSize(dtype); }
  Span seen_as(at::ScalarType other) const;       // Returns the same memory with elements of another type.
  Span slice(int64_t start, int64_t most) const;  // Returns at most `most` elements from `start` on.
};
Span span_of(const at::Tensor& tensor);

/// How a collective uses a span of the device.
enum class Use : uint8_t { kRead, kWrite, kReadWrite };

}  // namespace ocl::distributed
