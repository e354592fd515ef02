// csrc/torch/tensor_location.h: from at::Tensor to (cl_mem, offset) and back: all that exec needs to know of tensors.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "csrc/runtime/allocator.h"
#include "csrc/runtime/device.h"
#include "csrc/runtime/program.h"
#include "csrc/runtime/queue.h"

namespace ocl::aten {

/// Where element 0 of `tensor` lies, storage offset included, for work that is about to be enqueued on the current stream of
/// its device. Throws ConfigError for a tensor that is not on an ocl device. A tensor without elements has a null `mem`.
runtime::Location location(const at::Tensor& tensor);

/// A fresh tensor; contents undefined. Throws torch's OutOfMemoryError.
at::Tensor empty_strided_ocl(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype, int device);

/// The device of an index (-1: the thread's current one), and the queue of the thread's current stream there.
runtime::Device& device_at(int index);
runtime::Queue& current_queue(int device);
int current_device() noexcept;

/// Reserves `count` Philox counters (four 32-bit numbers each) of the device's default generator: (seed, first counter).
std::pair<uint64_t, uint64_t> reserve_philox(int device, uint64_t count);

/// dst[...] = src[...] with broadcasting done by the caller; any devices, dtypes and strides.
void copy_tensor(const at::Tensor& src, const at::Tensor& dst, bool non_blocking);

/// Where the binaries of the copy kernels are kept, and where a failed one's source goes. Without it each process builds them.
void set_build_context(runtime::BinaryStore store, std::string failed_dir);
/// Called before a copy kernel is built: it has the context set by the options that hold then.
void set_configure(std::function<void()> configure);

/// What SDPA becomes on ocl: 0 math, 4 the overrideable op, -1 (the default) the op where it is traced and math in eager.
void set_sdp_choice(int64_t choice);

/// Counts and, once per name, warns of an op that ran on the CPU instead.
void count_fallback(const std::string& op);

}  // namespace ocl::aten
