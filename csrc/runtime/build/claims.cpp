// csrc/runtime/build/claims.cpp: see claims.h.
#include "csrc/runtime/build/claims.h"

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "csrc/support/os.h"

namespace ocl::runtime {
namespace {

constexpr std::chrono::milliseconds kClaimPollTime{20};

struct Claimed {
  std::mutex mutex;
  std::condition_variable released;
  std::set<std::pair<int, std::string>> keys;
  int process = os::process_id();
};

/// Returns the claims of this process. The threads whose claims a forked child would inherit are not in it.
Claimed& claimed() {
  static std::mutex mutex;
  static auto* current = new Claimed;  // Never destroyed, because threads may outlive static destruction.
  const std::lock_guard lock(mutex);
  if (current->process != os::process_id()) current = new Claimed;
  return *current;
}

}  // namespace

bool Claims::claim(const std::string& key, bool asks_processes) {
  {
    Claimed& all = claimed();
    const std::lock_guard lock(all.mutex);
    if (!here_.contains(key) && !all.keys.emplace(device_, key).second) return false;
  }
  here_.insert(key);
  if (!asks_processes) return true;
  if (store_.claim(key)) {
    among_processes_.insert(key);
    return true;
  }
  release(key);
  return false;
}

void Claims::release(const std::string& key) {
  if (among_processes_.erase(key) > 0) store_.release(key);
  if (here_.erase(key) == 0) return;
  Claimed& all = claimed();
  {
    const std::lock_guard lock(all.mutex);
    all.keys.erase({device_, key});
  }
  all.released.notify_all();
}

void Claims::release_all() {
  while (!here_.empty()) release(std::string(*here_.begin()));
}

void Claims::wait() {
  Claimed& all = claimed();
  std::unique_lock lock(all.mutex);
  all.released.wait_for(lock, kClaimPollTime);
}

}  // namespace ocl::runtime
