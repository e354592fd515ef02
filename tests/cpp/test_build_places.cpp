// tests/cpp/test_build_places.cpp: the places for build workers that processes share.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/runtime/build/build_places.h"
#include "tests/cpp/other_process.h"
#include "tests/cpp/temporary_folder.h"

using namespace ocl;
using namespace ocl::runtime;
using std::chrono::milliseconds;

namespace {

const auto never = [] { return false; };

// Two objects with one file exclude each other as two processes do.
TEST_CASE("processes together have a place a core, and each has at least one worker") {
  const std::string folder = new_folder("places"), file = folder + "/places";
  const auto at_once = [] { return true; };
  constexpr milliseconds kLong{600'000}, kShort{100};
  const size_t cores = os::usable_cores().size();
  REQUIRE(cores > 0);
  BuildPlaces one(file, kLong), other(file, kShort);
  std::vector<std::unique_ptr<BuildPlaces::Taken>> all;
  for (size_t i = 0; i < cores; ++i) all.push_back(std::make_unique<BuildPlaces::Taken>(one, SIZE_MAX));
  CHECK(std::ranges::all_of(all, [](const auto& place) { return bool(*place); }));  // one process alone gets all
  CHECK(!BuildPlaces::Taken(one, SIZE_MAX));
  CHECK(!BuildPlaces::Taken(other, SIZE_MAX));
  CHECK(!BuildPlaces::Taken(one, SIZE_MAX, at_once));
  {
    const BuildPlaces::Taken alone(other, SIZE_MAX, never);  // after its timeout
    CHECK(bool(alone));
    const auto end = std::chrono::steady_clock::now() + 3 * kShort;
    CHECK(!BuildPlaces::Taken(other, SIZE_MAX, [&] { return std::chrono::steady_clock::now() > end; }));
  }
  all.pop_back();
  CHECK(bool(BuildPlaces::Taken(other, SIZE_MAX)));
  BuildPlaces without_locks(folder, kShort);  // a folder in place of the file
  CHECK(bool(BuildPlaces::Taken(without_locks, 0)));
  CHECK(bool(BuildPlaces::Taken(without_locks, 1)));
  CHECK(bool(BuildPlaces::Taken(without_locks, 1)));
}

TEST_CASE("no more than the places are taken at the same time") {
  const std::string file = new_folder("places") + "/places";
  constexpr size_t kMost = 2;
  std::atomic<size_t> now{0}, highest{0};
  std::vector<std::unique_ptr<BuildPlaces>> processes;
  std::vector<std::thread> threads;
  for (int p = 0; p < 4; ++p) processes.push_back(std::make_unique<BuildPlaces>(file, std::chrono::minutes(10)));
  for (int t = 0; t < 12; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        const BuildPlaces::Taken place(*processes[static_cast<size_t>(t) % 4], kMost, [] { return false; });
        const size_t mine = ++now;
        for (size_t seen = highest; seen < mine && !highest.compare_exchange_weak(seen, mine);) {
        }
        std::this_thread::sleep_for(milliseconds(2));
        --now;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(highest == std::min(kMost, os::usable_cores().size()));
}

TEST_CASE("a process that asks again at once does not keep the others from its place") {
  const std::string file = new_folder("places") + "/places";
  BuildPlaces busy(file, std::chrono::minutes(10)), other(file, std::chrono::minutes(10));
  std::atomic<bool> waits{false}, served{false};
  int turns = 0;
  std::thread thread([&] {
    while (!waits) std::this_thread::yield();
    const BuildPlaces::Taken place(other, 1, never);
    served = true;
  });
  while (!served && turns < 400) {
    const BuildPlaces::Taken place(busy, 1, never);
    waits = true;
    std::this_thread::sleep_for(milliseconds(5));
    ++turns;
  }
  CHECK(turns < 400);
  thread.join();
}

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Returns when each of its places began and ended. All processes of a machine have one steady clock.
const other_process::Role use_places("use places", [](os::Channel& parent, const os::Message& file) {
  BuildPlaces places(file[0], std::chrono::minutes(10));
  os::Message times;
  for (int i = 0; i < 6; ++i) {
    const BuildPlaces::Taken place(places, SIZE_MAX, never);
    if (i == 0) parent.send({"begun"});
    times.push_back(std::to_string(now_us()));
    std::this_thread::sleep_for(milliseconds(30));
    times.push_back(std::to_string(now_us()));
  }
  return times;
});

TEST_CASE("eight processes together use no more places than there are cores, also after one of them was killed") {
  const std::string file = new_folder("places") + "/places";
  std::vector<std::unique_ptr<os::Child>> processes;
  for (int p = 0; p < 8; ++p) processes.push_back(other_process::start("use places", {file}));
  for (const auto& process : processes) CHECK(other_process::next(*process) == os::Message{"begun"});
  processes.back()->kill();
  processes.pop_back();
  std::vector<std::pair<int64_t, int>> changes;  // An end comes before a beginning at the same time.
  for (const auto& process : processes) {
    const os::Message times = other_process::next(*process);
    REQUIRE(times.size() == 12);
    for (size_t i = 0; i < times.size(); ++i) changes.emplace_back(std::stoll(times[i]), i % 2 == 0 ? 1 : -1);
  }
  std::ranges::sort(changes);
  int now = 0, most = 0;
  for (const auto& [time, change] : changes) most = std::max(most, now += change);
  const size_t cores = os::usable_cores().size();
  CHECK(most <= static_cast<int>(cores));
  CHECK(most >= static_cast<int>(std::min<size_t>(cores, 2)));
  BuildPlaces places(file, std::chrono::minutes(10));
  std::vector<std::unique_ptr<BuildPlaces::Taken>> all;
  for (size_t i = 0; i < cores; ++i) all.push_back(std::make_unique<BuildPlaces::Taken>(places, SIZE_MAX));
  CHECK(std::ranges::all_of(all, [](const auto& place) { return bool(*place); }));
}

}  // namespace
