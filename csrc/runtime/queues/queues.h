// csrc/runtime/queues/queues.h: the queues of a device, one for each stream.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <vector>

#include "csrc/runtime/opencl/device_info.h"
#include "csrc/runtime/queues/queue.h"

namespace ocl::runtime {

/// Thread-safe. The queues are never destroyed.
class Queues {
 public:
  static constexpr int kStreamsPerPriority = 32;
  static constexpr int kApart = 128;
  // The default stream, then the streams of priorities 0, -1 and 1, then those of take_apart().
  static constexpr int kStreams = 1 + 3 * kStreamsPerPriority + kApart;

  Queues(const DeviceInfo& device, FaultWords& faults) : device_(device), faults_(faults) {}
  /// Returns the in-order queue of a stream, and creates it at the first use. Stream 0 is the default stream. ConfigError for a
  /// stream that next_stream never returns.
  Queue& of(int stream);
  /// Returns the next stream of a pool of kStreamsPerPriority streams of this priority, in turn. Below 0 is high
  /// priority, above 0 is low. A device without Caps::queue_priorities treats all alike.
  int next_stream(int priority);
  /// Returns a stream that nobody else has until it is given back, for waits and copies of collectives. Throws kUnsupported if
  /// all are taken.
  int take_apart();
  void give_back(int stream) noexcept;
  /// Returns the last events of all queues with unfinished work, except those of take_apart().
  std::vector<EventHandle> work_so_far();
  bool have_work() const;
  void synchronize();  // Waits for all queues. Throws the errors of asynchronous work.
  /// Waits for all queues until `deadline`. Ignores errors.
  void finish_before(std::chrono::steady_clock::time_point deadline) noexcept;

 private:
  const DeviceInfo& device_;
  FaultWords& faults_;
  std::mutex mutex_;                                    // Held while a queue is created.
  std::array<std::atomic<Queue*>, kStreams> queues_{};  // Stream -> queue.
  // Number of streams that next_stream returned for each priority.
  std::array<std::atomic<unsigned>, 3> given_{};
  std::array<bool, kApart> taken_{};  // Guarded by mutex_.
};

}  // namespace ocl::runtime
