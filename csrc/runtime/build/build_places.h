// csrc/runtime/build/build_places.h: how many build workers are at work at the same time, in all processes of this user.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "csrc/support/os.h"

namespace ocl::runtime {

/// A place for each core that this process may use: a lock on a byte of a file. Processes with the same file share the places
/// of the cores that they share. Of the processes that wait, one is next; none takes a place before it. The system frees the
/// places of a process that has ended. Where files have no locks, there is no limit.
class BuildPlaces {
 public:
  BuildPlaces(const std::string& file, std::chrono::milliseconds timeout);

  /// A place. The destructor gives it back.
  class Taken {
   public:
    /// Waits for one of the first `most` places, until `gives_up` returns true. A process that has none after its timeout
    /// goes on with one worker without a place, so that none stands still.
    Taken(BuildPlaces& all, size_t most, const std::function<bool()>& gives_up);
    /// Takes a free place, if there is one for which nobody waits. Check with `operator bool`.
    Taken(BuildPlaces& all, size_t most);
    ~Taken();
    Taken(const Taken&) = delete;
    Taken& operator=(const Taken&) = delete;
    explicit operator bool() const { return place_.has_value(); }

   private:
    BuildPlaces& all_;
    std::optional<uint64_t> place_;
  };

 private:
  bool take_turn();  // False if another thread or process is the next that gets a place. Ends with release(kNext).
  std::optional<uint64_t> take(size_t most, bool timed_out);
  void release(uint64_t place);

  std::mutex turn_;   // Held by the thread that waits for a place, so that only one asks again and again.
  std::mutex mutex_;  // Guards what follows.
  os::ByteLocks locks_;
  const std::vector<uint64_t> cores_;
  const std::chrono::milliseconds timeout_;
  std::set<uint64_t> taken_;  // By threads of this process.
};

}  // namespace ocl::runtime
