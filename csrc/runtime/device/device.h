// csrc/runtime/device/device.h: the OpenCL devices of all platforms, each with its context, caps, queues and allocator.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "csrc/runtime/device/device_list.h"
#include "csrc/runtime/opencl/device_info.h"
#include "csrc/runtime/queues/fault_words.h"
#include "csrc/runtime/queues/queues.h"

namespace ocl::runtime {

class Allocator;

/// One OpenCL device. It is created at its first use and never destroyed. Devices are ordered by kOrder (device_list.cpp):
/// GPUs, then accelerators, then CPUs, each in the order of the platforms, and last what is known to be wrong.
/// `TORCH_OCL_DEVICES` selects and reorders them by index, or by a part of the platform's or device's name. Python's config
/// reads that variable and passes it to configure_devices.
class Device {
 public:
  /// Returns the number of devices. Loads the OpenCL runtimes at the first call. ConfigError if the selection matches nothing.
  static int count();
  /// Returns a device. ConfigError if there is no such index; it names the devices that exist. DeviceError in a forked
  /// child, where OpenCL is unusable.
  static Device& get(int index);
  /// Returns the devices that have been used.
  static std::vector<Device*> in_use();

  const DeviceInfo& info() const { return info_; }
  int index() const { return info_.index; }
  const std::string& name() const { return info_.name; }
  const std::string& platform_name() const { return info_.platform_name; }
  const std::string& driver() const { return info_.driver; }
  const Caps& caps() const { return info_.caps; }
  const Profile* profile() const { return info_.profile; }
  const std::string& build_options() const { return info_.build_options; }
  cl_device_id id() const { return info_.id; }
  cl_context context() const { return info_.context.get(); }
  std::string describe() const { return info_.describe(); }
  Allocator& allocator() { return *allocator_; }
  /// Returns the address of the word in which kernels note a mistake with this message (fault_words.h).
  void* fault_word(const std::string& message);
  // These are as in Queues.
  Queue& queue(int stream = 0) { return queues_.of(stream); }
  int next_stream(int priority = 0) { return queues_.next_stream(priority); }
  int take_apart() { return queues_.take_apart(); }
  void give_back(int stream) noexcept { queues_.give_back(stream); }
  std::vector<EventHandle> work_so_far() { return queues_.work_so_far(); }
  void synchronize() { queues_.synchronize(); }
  void finish_before(std::chrono::steady_clock::time_point deadline) noexcept { queues_.finish_before(deadline); }

 private:
  friend class DeviceTable;
  Device();
  ~Device() = delete;
  DeviceInfo info_;
  FaultWords faults_;
  Queues queues_{info_, faults_};
  std::unique_ptr<Allocator> allocator_;
};

/// Returns the device whose memory contains `address`; nullptr if there is none.
Device* device_of(const void* address) noexcept;

/// Sets which devices are listed and in which order. Loads nothing yet. `selection` is TORCH_OCL_DEVICES: "" or a
/// comma-separated list of indices into the default order and of parts of "platform / device" (case does not matter).
/// `vendor_libraries` are runtimes that the system's list may lack, such as one installed by pip: paths of libraries,
/// of .icd files, or of folders with .icd files. Among CPUs, their devices come first. `profile` is TORCH_OCL_PROFILE: the
/// name of a device profile that all devices take on, or "". `library` is TORCH_OCL_LIBRARY, as in loader.h. ConfigError if the
/// profile is unknown, or if a device is in use already and something would change.
void configure_devices(const std::string& selection, const std::vector<std::string>& vendor_libraries,
                       const std::string& profile = "", const std::string& library = "");
/// Sets what tells the faults of drivers that an earlier process found. Call it before the devices are listed; it is asked for
/// drivers that nobody has tried, if there are several devices.
void set_known_faults(FaultsOf faults_of);
/// Return the libraries that configure_devices got last.
std::vector<std::string> vendor_libraries();
std::string opencl_library();
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
