// csrc/runtime/queue.h: one in-order command queue: copies, fills, launches, events. Nothing waits unless it says so.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "csrc/runtime/cl.h"
#include "csrc/runtime/history.h"

namespace ocl::runtime {

class Device;

/// A number for a kernel's name, for `Queue::launch`; the same name gives the same number. Call it once per call site.
int kernel_name_id(const std::string& name);

/// Thread-safe, as OpenCL's queues are. Zero bytes and empty launches are allowed and do nothing.
class Queue {
 public:
  /// `priority`: a wish, see stream_priority.
  Queue(Device& device, int stream, int priority = 0);
  Device& device() { return device_; }
  int stream() const { return stream_; }
  cl_command_queue get() const { return queue_.get(); }

  /// Blocking copies return when the host memory may be reused or holds the data.
  void write(cl_mem dst, size_t dst_offset, const void* src, size_t bytes, bool blocking);
  void read(cl_mem src, size_t src_offset, void* dst, size_t bytes, bool blocking);
  void copy(cl_mem src, size_t src_offset, cl_mem dst, size_t dst_offset, size_t bytes);
  /// `pattern_bytes` is 1, 2, 4, 8 or 16; offset and bytes are multiples of it. The pattern is copied at the call.
  void fill(cl_mem dst, size_t offset, size_t bytes, const void* pattern, size_t pattern_bytes, cl_event* event = nullptr);
  /// `name_id` names the kernel when the work fails later; `info` describes it for those who record.
  void launch(cl_kernel kernel, int dims, const std::array<size_t, 3>& global, const std::array<size_t, 3>& local,
              cl_event* event = nullptr, int name_id = 0, const LaunchInfoPtr& info = nullptr);
  EventHandle marker();  // completes when everything before it has
  /// A marker behind all work so far: the last one again, if nothing was enqueued since.
  EventHandle last_work();
  void wait_for(cl_event event);  // later work of this queue starts after `event`, which is one of the same device
  void flush();
  void finish();  // waits; raises the error of failed work with the kernel's name
  /// Whether anything was enqueued since the last finish().
  bool has_work() const { return enqueued_.load() != finished_.load(); }
  /// Whether all work so far is done. Raises DeviceError if it failed.
  bool idle();
  /// Waits for all work until `deadline`; false if it is not done by then. Errors of the work count as its end.
  bool finish_before(std::chrono::steady_clock::time_point deadline) noexcept;

 private:
  [[noreturn]] void raise(cl_int status, const char* call, const std::string& detail);
  void check_usable() const;
  Device& device_;
  int stream_;
  QueueHandle queue_;
  // Name ids of the latest launches since finish(). Threads may overwrite each other's: only messages read them.
  std::array<std::atomic<int>, 16> last_{};
  std::atomic<unsigned> launched_{0};
  std::atomic<uint64_t> enqueued_{0}, finished_{0};  // commands: counted when enqueued; those that a finish() saw
  std::mutex last_work_mutex_;
  EventHandle last_work_;
  uint64_t last_work_position_ = 0;  // commands enqueued before last_work_
};

}  // namespace ocl::runtime
