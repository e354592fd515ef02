// csrc/torch/device_state.h: the devices as torch sees them: set up on first use, current device and stream of a thread.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Stream.h>

#include <string>
#include <vector>

#include "csrc/runtime/device.h"
#include "csrc/runtime/queue.h"

namespace ocl::aten {

/// What configure_devices gets at the first use of a device; kept until then, so that importing loads no OpenCL runtime.
/// False, and nothing changes, once the devices have been listed.
bool set_device_sources(std::string selection, std::vector<std::string> vendor_libraries);
bool devices_ready() noexcept;

/// Number of devices; 0 (never an error) where OpenCL is missing or broken, or after a fork of an initialised process.
int device_count() noexcept;
/// Throws ConfigError on an index that does not exist, DeviceError in a forked child. -1 is the current device.
runtime::Device& device_at(int index);
int current_device() noexcept;
void set_current_device(int index) noexcept;
/// Whether the process forked after the devices were set up: OpenCL does not survive that.
bool in_bad_fork() noexcept;
/// Whether another thread than the importing one has worked with a device (autograd's device threads have).
bool used_by_other_threads() noexcept;
void note_thread() noexcept;

/// The thread's current stream of a device; 0 is the default stream.
int current_stream(int device) noexcept;
void set_current_stream(int device, int stream) noexcept;
runtime::Queue& current_queue(int device);

c10::DataPtr allocate_on(int device, size_t bytes);
c10::Allocator* device_allocator();

/// Throws UnsupportedError for a dtype the device cannot hold numbers of; `op` is named in the message.
void check_dtype(int device, at::ScalarType dtype, const char* op);
/// For tests: behave as if the device had no float64.
void pretend_no_fp64(int device, bool on);
bool has_fp64(int device);

}  // namespace ocl::aten
