// csrc/distributed/peers.cpp: writes and reads notes of failed ranks in the store; see peers.h.
#include "csrc/distributed/peers.h"

#include <chrono>
#include <thread>

namespace ocl::distributed {
namespace {

constexpr std::chrono::seconds kPatience{3};
constexpr std::chrono::milliseconds kPause{50};

std::string key_of(int rank) { return "ocl/failed/" + std::to_string(rank); }

/// Returns whether all ranks have written a note by the deadline.
bool all_noted(c10d::Store& store, const std::vector<std::string>& keys, std::chrono::steady_clock::time_point deadline) {
  while (!store.check(keys)) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

}  // namespace

std::string RankNames::of(int peer) const {
  return "rank " + std::to_string(peer) + (global_ranks.empty() ? "" : " (global " + std::to_string(global_ranks[peer]) + ")");
}

std::string ask_peers(c10d::Store& store, const RankNames& names, const std::string& message) noexcept {
  try {
    store.set(key_of(names.rank), message);
    std::vector<std::string> keys;
    for (int peer = 0; peer < names.size; ++peer) keys.push_back(key_of(peer));
    const bool all = all_noted(store, keys, std::chrono::steady_clock::now() + kPatience);
    std::string silent, lines;
    for (int peer = 0; peer < names.size; ++peer) {
      if (peer == names.rank) continue;
      if (all || store.check({keys[peer]}))
        lines += "\n  " + names.of(peer) + " failed too: " + store.get_to_str(keys[peer]).substr(0, 300);
      else
        silent += (silent.empty() ? "" : ", ") + names.of(peer);
    }
    if (!silent.empty()) lines = "\n  no sign of " + silent + ": it ended, hangs, or did not call this collective" + lines;
    return lines;
  } catch (const std::exception& error) {
    return std::string(
               "\n  the other ranks could not be asked, because the store does not answer; perhaps the process that "
               "keeps it (rank 0, or torchrun's agent) has ended: ") +
           std::string(error.what()).substr(0, 200);
  }
}

}  // namespace ocl::distributed
