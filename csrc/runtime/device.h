// csrc/runtime/device.h: the OpenCL devices of all platforms in one order, each with its context, caps, queues and allocator.
#pragma once

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
  static int count();
  /// Throws ConfigError naming the index and the devices that exist.
  static Device& get(int index);

  int index() const { return index_; }
  const std::string& name() const { return name_; }                    // CL_DEVICE_NAME
  const std::string& platform_name() const { return platform_name_; }  // CL_PLATFORM_NAME
  const std::string& driver() const { return driver_; }                // driver version + platform version, part of cache keys
  const Caps& caps() const { return caps_; }
  cl_device_id id() const { return id_; }
  cl_context context() const { return context_.get(); }
  Allocator& allocator() { return *allocator_; }
  /// In-order queue of a stream; stream 0 is the default. Creates it on first use.
  Queue& queue(int stream = 0);
  int new_stream();
  std::string describe() const;  // "'name' (platform, driver)" for messages
  void synchronize();            // waits for all queues; raises what asynchronous work failed with

 private:
  friend class DeviceTable;
  Device();
  ~Device();
  int index_ = 0;
  std::string name_, platform_name_, driver_;
  Caps caps_;
  cl_device_id id_ = nullptr;
  ContextHandle context_;
  std::unique_ptr<Allocator> allocator_;
  std::mutex queues_mutex_;
  std::vector<std::unique_ptr<Queue>> queues_;
};

/// Before the first use of a device: `selection` as TORCH_OCL_DEVICES, `vendor_dirs` extra folders of .icd files
/// (a pip-installed runtime). Throws ConfigError on a selection that matches nothing.
void configure_devices(const std::string& selection, const std::vector<std::string>& vendor_libraries);
/// Platforms or devices that failed while being listed, one line each, for `doctor` and for "no device" messages.
std::vector<std::string> device_problems();

}  // namespace ocl::runtime
