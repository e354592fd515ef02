// csrc/distributed/engine_thread.h: the thread of a transport: how it starts and ends, and when it refuses jobs.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "csrc/distributed/peers.h"
#include "csrc/distributed/transport.h"

namespace ocl::distributed {

class EngineThread : public Transport, public std::enable_shared_from_this<EngineThread> {
 public:
  explicit EngineThread(RankNames names) : names_(std::move(names)) {}
  void start() final;
  void check_usable(const std::string& title) const final;
  void shut_down() final;
  void abort(const std::string& reason) final;
  bool failed() const final;
  /// Makes the thread look at its state again.
  void wake();

 protected:
  /// The body of the thread. It ends when stopping_ is set and all jobs are over.
  virtual void run() = 0;
  /// Throws if jobs are refused. The caller holds the mutex.
  void check_open() const;
  /// Refuses jobs from now on, because one has failed with this message. The caller holds the mutex.
  void refuse(const std::string& message) noexcept;

  const RankNames names_;
  mutable std::mutex mutex_;  // Guards the members below, and those of the subclass that say so.
  std::condition_variable woken_;
  uint64_t wakes_ = 0;
  bool stopping_ = false;
  std::string refusal_;       // Why jobs are refused; "" if they are not.
  std::string abort_reason_;  // Set by abort().

 private:
  std::thread thread_;
};

/// Runs `action`. Errors are ignored, because memory may be short while a failure is reported.
template <class Action>
void attempt(const Action& action) noexcept {
  try {
    action();
  } catch (...) {
  }
}

}  // namespace ocl::distributed
