// csrc/distributed/barrier.h: the barrier that names the ranks that did not arrive. The ranks meet in the group's store, so it
// works even if connections between ranks are broken.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "csrc/distributed/peers.h"

namespace ocl::distributed {

class MonitoredBarrier {
 public:
  MonitoredBarrier(c10::intrusive_ptr<c10d::Store> store, RankNames names);
  /// Returns when all ranks have called it as often as this rank. The first rank that has waited for `timeout` decides that the
  /// barrier failed, and names the ranks that had not arrived. Then this call throws DistBackendError on every rank, also on
  /// ranks that arrive later. Throws some seconds after `timeout` if the store does not answer.
  void wait(std::chrono::milliseconds timeout);

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
  const RankNames names_;
  std::mutex mutex_;     // Guards the members below.
  uint64_t number_ = 0;  // Number of calls.
  int passed_ = 0;       // Number of calls that passed since the last one that failed.
};

}  // namespace ocl::distributed
