// csrc/torch/tensor_location.h: maps a tensor to (cl_mem, offset) and back, so that exec does not depend on torch.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "csrc/runtime/build/program.h"
#include "csrc/runtime/device/device.h"
#include "csrc/runtime/memory/allocator.h"
#include "csrc/runtime/queues/queue.h"

namespace ocl::aten {

/// Returns the memory of element 0 of `tensor`, storage offset included, for work that is about to be enqueued on the current
/// stream of the tensor's device. ConfigError if the tensor is not on an ocl device. A tensor without elements has a null
/// `mem`.
runtime::Location location(const at::Tensor& tensor);

/// Returns a new tensor with undefined contents. Throws torch's OutOfMemoryError.
at::Tensor empty_strided_ocl(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype, int device);

/// device_at returns the device with this index (-1: the thread's current device). current_queue returns the queue of the
/// thread's current stream on a device.
runtime::Device& device_at(int index);
runtime::Queue& current_queue(int device);
int current_device() noexcept;

/// Reserves `count` Philox counters (four 32-bit numbers each) of the device's default generator. Returns (seed, first
/// counter).
std::pair<uint64_t, uint64_t> reserve_philox(int device, uint64_t count);

/// Copies src to dst, which have equal sizes. Devices, dtypes and strides may differ.
void copy_tensor(const at::Tensor& src, const at::Tensor& dst, bool non_blocking);

/// Sets where binaries of the copy kernels are stored, and where the source of a copy kernel that does not build is saved. If
/// it is not called, each process builds the kernels.
void set_build_context(runtime::BinaryStore store, std::string failed_dir);
/// Calls the function of set_configure(), then returns what set_build_context() has set.
std::pair<runtime::BinaryStore, std::string> configured_build_context();
/// Sets a function that is called before a copy kernel is built. It calls set_build_context() with the current options.
void set_configure(std::function<void()> configure);

/// Sets what SDPA becomes on ocl. 0: math. 4: the overrideable op. -1 (the default): the op when traced, math in eager
/// mode.
void set_sdp_choice(int64_t choice);

}  // namespace ocl::aten
