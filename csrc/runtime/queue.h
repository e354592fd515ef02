// csrc/runtime/queue.h: one in-order command queue: copies, fills, launches, events. Nothing waits unless it says so.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "csrc/runtime/cl.h"

namespace ocl::runtime {

class Device;

/// A number for a kernel's name, for `Queue::launch`; the same name gives the same number. Call it once per call site.
int kernel_name_id(const std::string& name);

/// Thread-safe, as OpenCL's queues are. Zero bytes and empty launches are allowed and do nothing.
class Queue {
 public:
  Queue(Device& device, int stream);
  Device& device() { return device_; }
  int stream() const { return stream_; }
  cl_command_queue get() const { return queue_.get(); }

  /// Blocking copies return when the host memory may be reused or holds the data.
  void write(cl_mem dst, size_t dst_offset, const void* src, size_t bytes, bool blocking);
  void read(cl_mem src, size_t src_offset, void* dst, size_t bytes, bool blocking);
  void copy(cl_mem src, size_t src_offset, cl_mem dst, size_t dst_offset, size_t bytes);
  /// `pattern_bytes` is 1, 2, 4, 8 or 16; offset and bytes are multiples of it. The pattern is copied at the call.
  void fill(cl_mem dst, size_t offset, size_t bytes, const void* pattern, size_t pattern_bytes);
  void launch(cl_kernel kernel, int dims, const std::array<size_t, 3>& global, const std::array<size_t, 3>& local,
              cl_event* event = nullptr, int name_id = 0);  // `name_id` names the kernel when the work fails later
  EventHandle marker();                                     // completes when everything before it has
  void wait_for(cl_event event);                            // later work of this queue starts after `event`
  void flush();
  void finish();  // waits; raises the error of failed work with the kernel's name

 private:
  [[noreturn]] void raise(cl_int status, const char* call, const std::string& detail);
  Device& device_;
  int stream_;
  QueueHandle queue_;
  // Name ids of the latest launches since finish(). Threads may overwrite each other's: only messages read them.
  std::array<std::atomic<int>, 16> last_{};
  std::atomic<unsigned> launched_{0};
};

}  // namespace ocl::runtime
