// csrc/runtime/device.h: the OpenCL devices of all platforms, each with its context, caps, queues and allocator.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/kernels/caps.h"
#include "csrc/runtime/cl.h"

namespace ocl::runtime {

class Allocator;
class Queue;

/// One OpenCL device. It is created at its first use and never destroyed. Devices are ordered: GPUs, then accelerators,
/// then CPUs, each in the order of the platforms. `TORCH_OCL_DEVICES` selects and reorders them by index, or by a part
/// of the platform's or device's name. Python's config reads that variable and passes it to configure_devices.
class Device {
 public:
  /// Returns the number of devices. Loads the OpenCL runtimes at the first call. ConfigError if the selection matches nothing.
  static int count();
  /// Returns a device. ConfigError if there is no such index; it names the devices that exist. DeviceError in a forked
  /// child, where OpenCL is unusable.
  static Device& get(int index);
  /// Returns the devices that have been used.
  static std::vector<Device*> in_use();

  int index() const { return index_; }
  const std::string& name() const { return name_; }                    // CL_DEVICE_NAME
  const std::string& platform_name() const { return platform_name_; }  // CL_PLATFORM_NAME
  const std::string& driver() const { return driver_; }                // Driver and platform version, part of cache keys.
  const Caps& caps() const { return caps_; }
  // Options for clBuildProgram. They are part of cache keys.
  const std::string& build_options() const { return build_options_; }
  cl_device_id id() const { return id_; }
  cl_context context() const { return context_.get(); }
  Allocator& allocator() { return *allocator_; }
  /// Returns the in-order queue of a stream, and creates it at the first use. Stream 0 is the default stream. ConfigError for a
  /// stream that next_stream never returned.
  Queue& queue(int stream = 0);
  /// Returns the next stream of a pool of kStreamsPerPriority streams of this priority, in turn. Below 0 is high
  /// priority, above 0 is low. A device without Caps::queue_priorities treats all alike.
  int next_stream(int priority = 0);
  std::string describe() const;  // "'name' (platform, driver)" for messages.
  void synchronize();            // Waits for all queues. Throws the errors of asynchronous work.

  /// Waits for all queues until `deadline`. Ignores errors.
  void finish_before(std::chrono::steady_clock::time_point deadline) noexcept;

  static constexpr int kStreamsPerPriority = 32;
  // The default stream, then the streams of priorities 0, -1 and 1.
  static constexpr int kStreams = 1 + 3 * kStreamsPerPriority;

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
  std::mutex queues_mutex_;                             // Held while a queue is created.
  std::array<std::atomic<Queue*>, kStreams> queues_{};  // Stream -> queue. Owned, never destroyed.
  // Number of streams that next_stream returned for each priority.
  std::array<std::atomic<unsigned>, 3> streams_given_{};
};

/// Sets which devices are listed and in which order. Loads nothing yet. `selection` is TORCH_OCL_DEVICES: "" or a
/// comma-separated list of indices into the default order and of parts of "platform / device" (case does not matter).
/// `vendor_libraries` are runtimes that the system's list may lack, such as one installed by pip: paths of libraries,
/// of .icd files, or of folders with .icd files. Among CPUs, their devices come first. ConfigError if a device is in
/// use already and something would change.
void configure_devices(const std::string& selection, const std::vector<std::string>& vendor_libraries);
/// Returns the libraries that configure_devices got last.
std::vector<std::string> vendor_libraries();
/// Call when the process is about to end. Waits some seconds for the work of all devices, both now and in a function that
/// exit() calls first. No runtime is used afterwards. CPU runtimes compile and run kernels in threads of this process, and such
/// a thread crashes if the runtime's destructors run meanwhile. Some destructors are registered only when a kernel is compiled,
/// so this must be called late.
void end_devices() noexcept;
/// Returns one line for each platform or device that failed while it was listed. `doctor` and messages about missing devices
/// show the lines.
std::vector<std::string> device_problems();

/// A listed device, found without creating a context, for `python -m torch_ocl_compile devices`.
struct DeviceSummary {
  std::string name, platform_name, driver, type;  // `type` is "GPU", "accelerator" or "CPU".
};
std::vector<DeviceSummary> list_devices();

}  // namespace ocl::runtime
