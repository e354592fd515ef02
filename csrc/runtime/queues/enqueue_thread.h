// csrc/runtime/queues/enqueue_thread.h: a thread that enqueues the commands of a queue while the threads that post them go on.
// A driver takes some microseconds for each launch, which would otherwise add up with the time that Python takes.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

#include "csrc/runtime/opencl/cl.h"

namespace ocl::runtime {

/// A command that waits for the thread. What the pointers refer to stays as it is until the command is enqueued.
struct PostedCommand {
  enum class Kind : uint8_t { kArgument, kLaunch, kFill, kFlush };
  Kind kind = Kind::kFlush;
  int name_id = 0;  // Number of the kernel's name (kernel_name_id).
  cl_kernel kernel = nullptr;
  const std::array<size_t, 3>*global = nullptr, *local = nullptr;
  // kArgument: eight bytes for the argument number `slot`. kFill: the pattern, of `bytes_of_pattern` bytes.
  cl_uint slot = 0;
  std::array<uint64_t, 2> value{};
  size_t bytes_of_pattern = 0;
  cl_mem memory = nullptr;  // kFill, as `offset` and `bytes`.
  size_t offset = 0, bytes = 0;
};

/// Commands are enqueued in the order in which they are posted. If one fails, those after it are dropped until the error is
/// taken. The thread is never joined: it ends with the process.
class EnqueueThread {
 public:
  static constexpr size_t kCapacity = 2048;  // Commands that may wait.

  /// The thread calls `enqueue` for each command.
  explicit EnqueueThread(std::function<void(const PostedCommand&)> enqueue);
  /// Appends a command. Waits if kCapacity commands wait already. Throws the error of a command that has failed.
  void post(const PostedCommand& command);
  /// True if a posted command is not enqueued yet.
  bool is_busy() const noexcept { return done_.load(std::memory_order_acquire) != posted_.load(std::memory_order_acquire); }
  /// True if the thread looks for commands, so that it need not be woken.
  bool is_awake() const noexcept { return !sleeps_.load(std::memory_order_relaxed); }
  /// Waits until everything posted is enqueued or dropped, or until the deadline. Returns at once in a forked process, which
  /// has no such thread.
  void drain(std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max()) noexcept;
  /// Throws the error of a command that has failed, once.
  void raise_failure();
  /// Number of failures so far. A failure leaves arguments of kernels unset.
  uint64_t failures() const noexcept { return failures_.load(std::memory_order_acquire); }

 private:
  void run() noexcept;
  const std::function<void(const PostedCommand&)> enqueue_;
  std::mutex posting_;  // Held while a command is appended.
  std::unique_ptr<std::array<PostedCommand, kCapacity>> commands_;
  std::atomic<uint64_t> posted_{0}, done_{0}, failures_{0};
  std::atomic<bool> sleeps_{false}, failed_{false};
  std::mutex failing_;
  std::exception_ptr failure_;  // Of the first command that failed; guarded by failing_.
};

}  // namespace ocl::runtime
