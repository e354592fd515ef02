// csrc/torch/device_copy.h: copies of dense memory between two devices, and from the host to a device.
#pragma once

#include <ATen/ATen.h>

namespace ocl::aten {

/// Copies dense host memory to the dense tensor `dst`. The copy is asynchronous if the memory is pinned and `non_blocking` is
/// set. Otherwise the memory can be reused when the call returns.
void upload_bytes(const void* from, const at::Tensor& dst, bool non_blocking);

/// True if send() has a way between the devices of two ocl tensors.
bool can_send(const at::Tensor& src, const at::Tensor& dst);
/// Copies a dense tensor to one of the same type and layout on another ocl device: from GPU to GPU where there is a link, or
/// with one copy where one of the two memories is the host's. Returns false if there is no such way or no memory for
/// it; `dst` is undefined then.
bool send(const at::Tensor& src, const at::Tensor& dst);

/// True if copies from one device to the other do not go through the host's memory.
bool can_access_peer(int device, int peer);

}  // namespace ocl::aten
