// csrc/runtime/queues/queue.h: an in-order command queue for copies, fills, launches and events. A call waits only if its
// comment says so.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "csrc/runtime/opencl/device_info.h"
#include "csrc/runtime/queues/enqueue_thread.h"
#include "csrc/runtime/record/history.h"

namespace ocl::runtime {

class FaultWords;

/// Returns a number for a kernel's name, for Queue::launch. Equal names give equal numbers. Call it once per call site.
int kernel_name_id(const std::string& name);

/// Thread-safe, as OpenCL's queues are. Copies of zero bytes and empty launches are allowed and do nothing.
class Queue {
 public:
  /// `priority` is as in Queues::next_stream. Devices without priorities ignore it.
  Queue(const DeviceInfo& device, FaultWords& faults, int stream, int priority = 0);
  const DeviceInfo& device() const { return device_; }
  int stream() const { return stream_; }
  cl_command_queue get() const { return queue_.get(); }
  /// True if the events of commands have times.
  bool has_times() const { return has_times_; }

  /// A blocking write returns when `src` can be reused; a blocking read returns when `dst` has the data.
  void write(cl_mem dst, size_t dst_offset, const void* src, size_t bytes, bool blocking);
  void read(cl_mem src, size_t src_offset, void* dst, size_t bytes, bool blocking);
  void copy(cl_mem src, size_t src_offset, cl_mem dst, size_t dst_offset, size_t bytes);
  /// `pattern_bytes` is 1, 2, 4, 8 or 16. `offset` and `bytes` are multiples of it. The pattern is copied before the
  /// call returns.
  void fill(cl_mem dst, size_t offset, size_t bytes, const void* pattern, size_t pattern_bytes, cl_event* event = nullptr);
  /// A `local` of zeros leaves the choice to the runtime. `name_id` names the kernel in the error if the work fails later.
  /// `info` describes the launch in recordings.
  void launch(cl_kernel kernel, int dims, const std::array<size_t, 3>& global, const std::array<size_t, 3>& local,
              cl_event* event = nullptr, int name_id = 0, const LaunchInfoPtr& info = nullptr);
  /// True if a graph may post its launches: threads may enqueue for this device, nothing records commands, and enqueuing costs
  /// as much as more than a few launches (`cost`), or the queue's thread is awake anyway. It needs some time to wake.
  bool may_post(size_t cost) const;
  /// Call before others enqueue commands themselves. All commands of later calls are enqueued when the call returns.
  void share();
  /// Leaves a command to the queue's thread, which enqueues it in its turn. All other calls first wait for posted commands, and
  /// throw the error of a posted command that failed.
  void post(const PostedCommand& command);
  /// True if a posted command is not enqueued yet.
  bool has_posted() const noexcept;
  /// True if the thread of posted commands looks for more of them.
  bool thread_is_awake() const noexcept;
  /// Waits until all posted commands are enqueued. drain_or_throw() throws the error of one that failed.
  void drain() noexcept;
  void drain_or_throw();
  /// Number of posted commands that failed so far. The arguments that they set, and those after them, are unset.
  uint64_t posted_failures() const noexcept;
  EventHandle marker();  // Returns an event that completes when everything enqueued before it has.
  /// Returns a marker after all work so far. Returns the last marker again if nothing was enqueued since.
  EventHandle last_work();
  // Later work of this queue starts after `event`, an event of the same device.
  void wait_for(cl_event event);
  /// Makes the queue one that holds nothing but copies of collectives. The observer of waits is not told of it.
  void set_apart() { apart_ = true; }
  /// From now on the work of this queue is done when `event` is complete, and events of the queue are `event` itself. Call it
  /// for queues without commands only.
  void follow(cl_event event);
  bool apart() const { return apart_; }
  /// Calls `observer` from now on before a queue of any device waits for an event.
  static void observe_waits(void (*observer)(Queue& queue)) noexcept;
  void flush();
  // Waits for all work. Throws the error of failed work, with the names of the last kernels.
  void finish();
  /// Call when work that may store into FaultWords has been enqueued. The next finish() or blocking read() looks for faults.
  void expect_faults() noexcept;
  /// Makes the next finish(), idle() or blocking read throw DeviceError with this message. Call it if work outside of OpenCL
  /// has failed that later work of this queue relies on.
  void raise_later(const std::string& message);
  /// True if anything was enqueued since the last finish().
  bool has_work() const { return enqueued_.load() != finished_.load(); }
  /// True if all work so far is done. DeviceError if it failed.
  bool idle();
  /// Waits for all work until `deadline`. Returns false if it is not done by then. Failed work counts as done.
  bool finish_before(std::chrono::steady_clock::time_point deadline) noexcept;

 private:
  /// Enqueues a posted command. No recording notes it, because none was open when it was posted.
  void enqueue(const PostedCommand& command);
  void launch_now(cl_kernel kernel, int dims, const std::array<size_t, 3>& global, const std::array<size_t, 3>& local,
                  cl_event* event, int name_id);
  [[noreturn]] void raise(cl_int status, const char* call, const std::string& detail);
  void check_usable() const;
  void raise_deferred();
  EventHandle followed();
  const DeviceInfo& device_;
  int stream_;
  FaultWords& faults_;
  std::atomic<bool> apart_{false}, expects_faults_{false};
  QueueHandle queue_;
  bool has_times_ = true;
  std::atomic<bool> shared_{false};  // Set by share().
  // Name ids of the latest launches since finish(). Threads may overwrite each other's ids, because only error messages
  // use them.
  std::array<std::atomic<int>, 16> last_{};
  std::atomic<unsigned> launched_{0};
  // Number of enqueued commands, and how many of them a finish() has waited for.
  std::atomic<uint64_t> enqueued_{0}, finished_{0};
  std::once_flag thread_made_;
  std::atomic<EnqueueThread*> thread_{nullptr};  // Made when the first command is posted, and never destroyed.
  std::mutex last_work_mutex_;
  EventHandle last_work_;
  std::mutex followed_mutex_;
  EventHandle followed_;  // The event of follow(). Null for most queues.
  std::atomic<bool> follows_{false};
  std::atomic<bool> has_deferred_{false};
  std::mutex deferred_mutex_;
  std::string deferred_;             // The message of raise_later().
  uint64_t last_work_position_ = 0;  // Number of commands that were enqueued before last_work_.
};

/// Which launches threads enqueue. kAuto: those of Queue::may_post on devices that do not compute on the host's cores. kAlways:
/// all of graphs and eager ops, on all devices.
enum class EnqueueThreads : uint8_t { kAuto, kNever, kAlways };
void set_enqueue_threads(EnqueueThreads allowed) noexcept;

}  // namespace ocl::runtime
