// csrc/runtime/build/build_places.cpp: see build_places.h.
#include "csrc/runtime/build/build_places.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <thread>

#include "csrc/support/log.h"
#include "csrc/support/path.h"

namespace ocl::runtime {
namespace {

constexpr std::chrono::milliseconds kPlacePollTime{5};  // The system does not tell that another process gave a place back.
constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kBeside = kNoLimit - 1;     // The worker without a place.
constexpr uint64_t kNext = uint64_t{1} << 32;  // The byte of the process whose turn is next, behind those of all cores.

/// Returns `file` in a folder that only this user can change, which is made if it is missing; "" if others can change it.
std::string private_file(const std::string& file) {
  const std::filesystem::path path = path_of(file);
  const os::PrivateFolder folder = os::private_folder(text_of(path.parent_path()));
  if (folder.problem.empty()) return text_of(path_of(folder.path) / path.filename());
  log_message(LogLevel::kInfo, "runtime", "processes do not share places for build workers: " + folder.problem);
  return "";
}

}  // namespace

BuildPlaces::BuildPlaces(const std::string& file, std::chrono::milliseconds timeout)
    : locks_(private_file(file)), cores_(os::usable_cores()), timeout_(timeout) {}

bool BuildPlaces::take_turn() {
  const std::lock_guard lock(mutex_);
  return !taken_.contains(kNext) && locks_.take(kNext) != os::ByteLocks::Taken::kNo && taken_.insert(kNext).second;
}

std::optional<uint64_t> BuildPlaces::take(size_t most, bool timed_out) {
  const std::lock_guard lock(mutex_);
  const size_t count = std::min(most, cores_.size());
  if (count == 0) return kNoLimit;
  // Processes begin at different cores, so that each seldom finds a place taken.
  const auto first = static_cast<size_t>(os::process_id());
  for (size_t i = 0; i < count; ++i) {
    const uint64_t core = cores_[(first + i) % count];
    if (taken_.contains(core)) continue;
    const os::ByteLocks::Taken got = locks_.take(core);
    if (got == os::ByteLocks::Taken::kUnsupported) return kNoLimit;
    if (got == os::ByteLocks::Taken::kNo) continue;
    taken_.insert(core);
    return core;
  }
  if (!timed_out || taken_.size() > taken_.count(kNext)) return std::nullopt;
  taken_.insert(kBeside);
  return kBeside;
}

void BuildPlaces::release(uint64_t place) {
  const std::lock_guard lock(mutex_);
  if (taken_.erase(place) > 0 && place != kBeside) locks_.release(place);
}

BuildPlaces::Taken::Taken(BuildPlaces& all, size_t most) : all_(all) {
  // A process that gives a place back and asks again at once would always be the first to find it free.
  if (!all.take_turn()) return;
  place_ = all.take(most, false);
  all.release(kNext);
}

BuildPlaces::Taken::Taken(BuildPlaces& all, size_t most, const std::function<bool()>& gives_up) : Taken(all, most) {
  if (place_) return;
  const auto end = std::chrono::steady_clock::now() + all.timeout_;
  const std::lock_guard turn(all.turn_);
  for (bool is_next = false;; std::this_thread::sleep_for(kPlacePollTime)) {
    is_next = is_next || all.take_turn();
    const bool timed_out = std::chrono::steady_clock::now() >= end;
    if (is_next || timed_out) place_ = all.take(most, timed_out);
    if (!place_ && !gives_up()) continue;
    if (is_next) all.release(kNext);
    return;
  }
}

BuildPlaces::Taken::~Taken() {
  if (place_) all_.release(*place_);
}

}  // namespace ocl::runtime
