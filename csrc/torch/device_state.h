// csrc/torch/device_state.h: the devices as torch sees them, and the current device and streams of each thread.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Stream.h>

#include <string>
#include <vector>

#include "csrc/runtime/device/device.h"
#include "csrc/runtime/queues/queue.h"

namespace ocl::aten {

/// Sets the arguments for configure_devices. That function is called at the first use of a device, so importing the package
/// loads no OpenCL runtime. Returns false and changes nothing if the devices have already been listed.
bool set_device_sources(std::string selection, std::vector<std::string> vendor_libraries, std::string profile,
                        std::string library);
/// Sets an error that the first use of a device throws as ConfigError; "" for none.
void set_device_fault(std::string fault);
/// Sets the devices up. Returns the errors that occurred, one line each.
std::vector<std::string> device_problems();
bool devices_ready() noexcept;

/// Returns the number of devices. 0 if OpenCL is missing or broken, or after a fork of a process that used a device. Never
/// throws.
int device_count() noexcept;
/// Returns the device with this index; -1 stands for the current device. ConfigError if there is none. DeviceError in a forked
/// child.
runtime::Device& device_at(int index);
int current_device() noexcept;
void set_current_device(int index) noexcept;
/// True if the process forked after the devices were set up. OpenCL does not survive that.
bool in_bad_fork() noexcept;
/// True if a thread other than the importing one has used a device, as autograd's device threads do.
bool used_by_other_threads() noexcept;
void note_thread() noexcept;

/// Returns the thread's current stream on a device. 0 is the default stream.
int current_stream(int device) noexcept;
void set_current_stream(int device, int stream) noexcept;
runtime::Queue& current_queue(int device);

/// Sets whether this thread's new tensors are in memory that CUDA can use. Returns the previous setting.
bool share_new_tensors_with_cuda(bool on) noexcept;
bool shares_new_tensors_with_cuda() noexcept;

c10::DataPtr allocate_on(int device, size_t bytes);
c10::Allocator* device_allocator();

/// Throws UnsupportedError if the device has no numbers of this dtype. The message names `op`.
void check_dtype(int device, at::ScalarType dtype, const char* op);
/// Makes the device behave as if it had no float64. Only tests use it.
void pretend_no_fp64(int device, bool on);
bool has_fp64(int device);

}  // namespace ocl::aten
