// csrc/distributed/barrier.cpp: ranks write a key when they arrive; the first that knows the outcome writes it; see barrier.h.
#include "csrc/distributed/barrier.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/distributed/threads.h"

namespace ocl::distributed {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kLongestPause{20};
constexpr std::chrono::seconds kStorePatience{5};  // With a store that does not answer.
constexpr const char* kPassed = "passed";

std::string key_of(uint64_t number, const std::string& what) { return "ocl/barrier/" + std::to_string(number) + "/" + what; }

/// Says which ranks have not arrived. "" if all have.
std::string missing_ranks(c10d::Store& store, const RankNames& names, const std::vector<std::string>& arrivals) {
  std::string missing;
  for (int peer = 0; peer < names.size; ++peer)
    if (!store.check({arrivals[peer]})) missing += (missing.empty() ? "" : ", ") + names.of(peer);
  return missing;
}

/// Waits for the outcome of the barrier, or decides it. The first decision that reaches the store counts on all ranks.
std::string outcome_of(c10d::Store& store, const RankNames& names, uint64_t number, std::chrono::milliseconds timeout) {
  const std::string outcome = key_of(number, "outcome");
  const auto decide = [&](const std::string& text) { return store.compareSet(outcome, std::string(), text); };
  std::vector<std::string> arrivals;
  for (int peer = 0; peer < names.size; ++peer) arrivals.push_back(key_of(number, std::to_string(peer)));
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (std::chrono::milliseconds pause{1};; pause = std::min(2 * pause, kLongestPause)) {
    if (store.check({outcome})) return store.get_to_str(outcome);
    if (names.rank == 0 && store.check(arrivals)) return decide(kPassed);
    if (std::chrono::steady_clock::now() >= deadline) break;
    std::this_thread::sleep_for(pause);
  }
  const std::string missing = missing_ranks(store, names, arrivals);
  if (missing.empty()) return decide(kPassed);
  return decide(names.of(names.rank) + " waited " + std::to_string(timeout.count()) + " ms, and there was no sign of " +
                missing + ": it ended, hangs, or did not call this barrier");
}

/// Takes part in a barrier. Returns its outcome. `passed`: how many barriers before it have passed, one after the other.
std::string meet(c10d::Store& store, const RankNames& names, uint64_t number, int passed, std::chrono::milliseconds timeout) {
  // All ranks have arrived at the previous barrier. So all have left the one before it, whose keys can be deleted.
  if (passed >= 2) {
    store.deleteKey(key_of(number - 2, std::to_string(names.rank)));
    if (names.rank == 0) store.deleteKey(key_of(number - 2, "outcome"));
  }
  store.set(key_of(number, std::to_string(names.rank)), std::string("1"));
  return outcome_of(store, names, number, timeout);
}

}  // namespace

MonitoredBarrier::MonitoredBarrier(c10::intrusive_ptr<c10d::Store> store, RankNames names)
    : store_(std::move(store)), names_(std::move(names)) {}

void MonitoredBarrier::wait(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  ++number_;
  const int passed = std::exchange(passed_, 0);
  // A call of the store has no timeout, and never returns if the process that keeps the store is stopped, or if a process holds
  // the lock of a store's file. So a thread makes the calls, and is left behind if it does not end.
  const auto task = std::make_shared<std::packaged_task<std::string()>>(
      [=, store = store_, names = names_, number = number_] { return meet(*store, names, number, passed, timeout); });
  std::future<std::string> result = task->get_future();
  start_thread("for monitored_barrier", [task] { (*task)(); }).detach();
  std::string outcome = "the store has not answered for " + std::to_string((timeout + kStorePatience) / 1s) +
                        " s, so nothing is known of the other ranks: the process that keeps it (rank 0, or torchrun's agent) "
                        "hangs, or another process holds the lock of its file";
  if (result.wait_for(timeout + kStorePatience) == std::future_status::ready) outcome = result.get();
  if (outcome == kPassed) passed_ = passed + 1;
  TORCH_CHECK_WITH(DistBackendError, outcome == kPassed, "monitored_barrier (number ", number_, " of group ", names_.group,
                   ") failed on ", names_.of(names_.rank), ": ", outcome);
}

}  // namespace ocl::distributed
