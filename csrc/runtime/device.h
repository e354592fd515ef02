// csrc/runtime/device.h: the OpenCL devices of all platforms in one order, each with its context, caps, queues and allocator.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/runtime/cl.h"
#include "csrc/support/caps.h"

namespace ocl::runtime {

class Allocator;
class Queue;

/// One OpenCL device. Created on first use, never destroyed before the process ends.
/// Order: GPUs, then accelerators, then CPUs, each in platform order; `TORCH_OCL_DEVICES` (read by Python's config and passed
/// to configure_devices) selects and orders by index or by a part of the platform or device name.
class Device {
 public:
  /// Loads the OpenCL runtimes at the first call. Throws ConfigError when the selection matches nothing.
  static int count();
  /// Throws ConfigError naming the index and the devices that exist; DeviceError in a forked child, where OpenCL is unusable.
  static Device& get(int index);
  /// Those that have been used.
  static std::vector<Device*> in_use();

  int index() const { return index_; }
  const std::string& name() const { return name_; }                    // CL_DEVICE_NAME
  const std::string& platform_name() const { return platform_name_; }  // CL_PLATFORM_NAME
  const std::string& driver() const { return driver_; }                // driver version + platform version, part of cache keys
  const Caps& caps() const { return caps_; }
  const std::string& build_options() const { return build_options_; }  // for clBuildProgram, part of cache keys
  cl_device_id id() const { return id_; }
  cl_context context() const { return context_.get(); }
  Allocator& allocator() { return *allocator_; }
  /// In-order queue of a stream; stream 0 is the default. Creates it on first use. Throws ConfigError for a stream that
  /// next_stream never gave.
  Queue& queue(int stream = 0);
  /// A stream of the priority from a pool, in turn: there are no more than kStreamsPerPriority of each. Below 0 is urgent,
  /// above 0 is patient; a device without Caps::queue_priorities treats all alike.
  int next_stream(int priority = 0);
  std::string describe() const;  // "'name' (platform, driver)" for messages
  void synchronize();            // waits for all queues; raises what asynchronous work failed with

  /// Waits for all queues until `deadline`, whatever becomes of their work.
  void finish_before(std::chrono::steady_clock::time_point deadline) noexcept;

  static constexpr int kStreamsPerPriority = 32;
  static constexpr int kStreams = 1 + 3 * kStreamsPerPriority;  // the default one, then those of priority 0, -1 and 1

 private:
  friend class DeviceTable;
  Device();
  ~Device() = delete;
  int index_ = 0;
  std::string name_, platform_name_, driver_, build_options_;
  Caps caps_;
  cl_device_id id_ = nullptr;
  ContextHandle context_;
  std::unique_ptr<Allocator> allocator_;
  std::mutex queues_mutex_;                               // held while a queue is created
  std::array<std::atomic<Queue*>, kStreams> queues_{};    // by stream; owned, never destroyed
  std::array<std::atomic<unsigned>, 3> streams_given_{};  // by priority
};

/// What is listed and in which order; loads nothing yet. `selection` is TORCH_OCL_DEVICES: "" or a comma-separated list of
/// indices into the default order and of parts of "platform / device" (any case). `vendor_libraries` are runtimes which the
/// system's list may lack (a pip-installed one): paths of libraries, of .icd files, or of folders of .icd files; among CPUs
/// their devices come first. Throws ConfigError when a device is in use already and something would change.
void configure_devices(const std::string& selection, const std::vector<std::string>& vendor_libraries);
/// What configure_devices was last given.
std::vector<std::string> vendor_libraries();
/// Called when the process is about to end: waits for the work of all devices, up to some seconds, and does so again as the
/// first of the functions that exit() calls; then no runtime is used any more. Runtimes for CPUs compile and run kernels in
/// threads of this process. Such a thread crashes when the destructors of the runtime's libraries run meanwhile. Some of these
/// are registered only when a kernel is compiled, so this must be called late.
void end_devices() noexcept;
/// Platforms or devices that failed while being listed, one line each, for `doctor` and for "no device" messages.
std::vector<std::string> device_problems();

/// One listed device, found without creating a context: `python -m torch_ocl_compile devices`.
struct DeviceSummary {
  std::string name, platform_name, driver, type;  // type: "GPU", "accelerator" or "CPU"
};
std::vector<DeviceSummary> list_devices();

}  // namespace ocl::runtime
