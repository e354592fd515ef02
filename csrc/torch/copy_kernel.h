// csrc/torch/copy_kernel.h: copies within a device by a kernel, with any strides and most conversions of dtypes.
#pragma once

#include <ATen/ATen.h>

namespace ocl::aten {

/// Returns the name of an element type in kernels/base/copy.cl and sparse.cl, "i64"; nullptr if there is none.
const char* kernel_type(at::ScalarType dtype);
/// True if a kernel copies elements of dtype `src` to dtype `dst` on this device.
bool has_copy_kernel(at::ScalarType src, at::ScalarType dst, int device);

/// Enqueues a copy from src to dst, which have equal sizes and are on one device. has_copy_kernel() must be true for their
/// dtypes.
void launch_copy(const at::Tensor& src, const at::Tensor& dst);

/// Enqueues a kernel that sets a dense block of memory, whose size and place are multiples of 8 bytes, to copies of `value`.
void launch_fill(const at::Tensor& memory, uint64_t value);

}  // namespace ocl::aten
