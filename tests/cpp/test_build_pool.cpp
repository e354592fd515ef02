// tests/cpp/test_build_pool.cpp: kernels compiled in worker processes; workers that crash, hang, are killed or do not
// start.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

#include "csrc/runtime/build/build_places.h"
#include "csrc/runtime/build/build_pool.h"
#include "csrc/runtime/build/compiles_at_launch.h"
#include "csrc/runtime/build/program.h"
#include "csrc/runtime/memory/allocator.h"
#include "csrc/runtime/opencl/background.h"
#include "csrc/runtime/queues/queue.h"
#include "csrc/support/child.h"
#include "csrc/support/compiler_crash.h"
#include "csrc/support/log.h"
#include "tests/cpp/built_kernels.h"
#include "tests/cpp/other_process.h"
#include "tests/cpp/runtime_devices.h"
#include "tests/cpp/temporary_folder.h"
#include "tests/cpp/with_pool.h"

using namespace ocl;
using namespace ocl::runtime;

namespace {

#if defined(_WIN32)
constexpr const char* kAborted = "exit status 3";
#else
constexpr const char* kAborted = "signal 6";
#endif

std::string unique() {
  static int count = 0;
  return std::to_string(os::process_id()) + "_" + std::to_string(++count);
}

/// Returns `count` new kernels that no cache has; kernel i computes y[0] = i + 0.5.
std::vector<KernelText> fresh_texts(int count, const std::string& comment = "") {
  std::vector<KernelText> texts;
  const std::string tag = unique();
  for (int i = 0; i < count; ++i) {
    const std::string name = "k" + std::to_string(i);
    const std::string body = "{ y[0] = " + std::to_string(i) + ".5f; }  // " + tag + "\n";
    texts.push_back({name, kKernelMarker + ("__kernel void " + name + "(__global float* y) " + body), "", {1, 1, 1}});
  }
  if (!comment.empty()) texts[static_cast<size_t>(count) / 2].text += "// " + comment + "\n";
  return texts;
}

void check_values(Device& device, const std::vector<std::shared_ptr<Program>>& programs, const std::vector<KernelText>& texts) {
  for (size_t i = 0; i < texts.size(); ++i) CHECK(run(device, *programs[i], texts[i].name) == static_cast<float>(i) + 0.5f);
}

std::string error_of(Device& device, const std::vector<KernelText>& texts, const BinaryStore& store) {
  try {
    build_programs(device, texts, store, "");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kBuild);
    return error.what();
  }
  return "";
}

int64_t by_workers() { return build_counters().by_workers; }

/// Runs a test for each device whose binaries are kept (keeps_binaries). Other devices compile in this process only.
void for_each_with_binaries(const std::function<void(Device&)>& test) {
  for_each_device([&](Device& device) {
    Store store;
    build_programs(device, fresh_texts(1), store.functions(), "");
    if (keeps_binaries(device)) test(device);
  });
}

#if defined(__linux__)
std::vector<int> children() {
  std::vector<int> found;
  std::ifstream file("/proc/self/task/" + std::to_string(os::process_id()) + "/children");
  for (int child = 0; file >> child;) found.push_back(child);
  return found;
}
#endif

}  // namespace

TEST_CASE("workers build what is missing, and their binaries are stored") {
  const WithPool pool(2);
  for_each_with_binaries([](Device& device) {
    Store store;
    const auto texts = fresh_texts(20);
    const int64_t before = by_workers();
    const auto programs = build_programs(device, texts, store.functions(), "");
    // One kernel may have been built in this process, to find out whether the driver's binaries are kept.
    CHECK(by_workers() - before >= 19);
    check_values(device, programs, texts);
    forget_programs();
    const BuildCounters counters = build_counters();
    check_values(device, build_programs(device, texts, store.functions(), ""), texts);
    CHECK(build_counters().built == counters.built);
  });
}

#if defined(__linux__)
TEST_CASE("workers that were started before there are kernels build them") {
  for_each_with_binaries([](Device& device) {
    const WithPool pool(2);
    start_workers(device, 1);
    while (children().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::vector<int> started = children();
    start_workers(device, 9);  // No more than two in all.
    while (children().size() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const auto texts = fresh_texts(20);
    check_values(device, build_programs(device, texts, Store().functions(), ""), texts);
    CHECK(children().size() == 2);
    CHECK(std::ranges::count(children(), started[0]) == 1);
  });
}
#endif

TEST_CASE("a kernel is built while the background waits for its workers") {
  for (const int workers : {1, 2})
    for_each_with_binaries([&](Device& device) {
      const WithPool pool(workers, "hang", std::chrono::milliseconds(4000));
      Store store;
      const auto slow = fresh_texts(8, "deadly"), other = fresh_texts(1);
      std::future<void> background =
          run_in_background([&] { CHECK_THROWS_AS(build_programs(device, slow, store.functions(), ""), CompilerCrash); });
      Store own;
      check_values(device, build_programs(device, other, own.functions(), ""), other);
      CHECK(background.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
      background.wait();
    });
}

const other_process::Role hold_places("hold places", [](os::Channel& parent, const os::Message& file) {
  static BuildPlaces places(file[0], std::chrono::minutes(10));
  static std::vector<std::unique_ptr<BuildPlaces::Taken>> all;
  for (size_t i = 0; i < os::usable_cores().size(); ++i) all.push_back(std::make_unique<BuildPlaces::Taken>(places, SIZE_MAX));
  parent.send({"held"});
  std::this_thread::sleep_for(std::chrono::hours(1));
  return os::Message{};
});

TEST_CASE("the places of a process that was killed are free, and a process without places builds in one worker") {
  const std::string file = new_folder("places") + "/places";
  const auto holder = other_process::start("hold places", {file});
  REQUIRE(other_process::next(*holder) == os::Message{"held"});
  for_each_with_binaries([&](Device& device) {
    const WithPool pool(2);
    set_build_pool({.most_workers = 2, .places = file, .place_timeout = std::chrono::milliseconds(100)});
    const auto texts = fresh_texts(20);
    const int64_t before = by_workers();
    check_values(device, build_programs(device, texts, Store().functions(), ""), texts);
    CHECK(by_workers() - before >= 19);
  });
  BuildPlaces places(file, std::chrono::minutes(10));
  CHECK(!BuildPlaces::Taken(places, SIZE_MAX));
  holder->kill();
  CHECK(bool(BuildPlaces::Taken(places, SIZE_MAX, [] { return false; })));
}

TEST_CASE("no workers are asked for") {
  const WithPool pool(0);
  for_each_with_binaries([](Device& device) {
    const int64_t before = by_workers();
    const auto texts = fresh_texts(20);
    check_values(device, build_programs(device, texts, Store().functions(), ""), texts);
    CHECK(by_workers() == before);
  });
}

TEST_CASE("a kernel that ends its compiler is named, is not tried again, and others are kept") {
  for (const std::string mode : {"crash", "hang", "garbage"}) {
    const WithPool pool(2, mode, mode == "hang" ? std::chrono::milliseconds(6000) : std::chrono::seconds(60));
    for_each_with_binaries([&](Device& device) {
      CAPTURE(mode);
      Store store;
      const auto texts = fresh_texts(6, "deadly");
      CHECK_THROWS_AS(build_programs(device, texts, store.functions(), ""), CompilerCrash);
      const std::string message = error_of(device, texts, store.functions());
      CHECK(message.find("kernel k3 does not build") != std::string::npos);
      const std::string how = mode == "crash" ? kAborted : mode == "hang" ? "no answer for" : "an answer that is not one";
      CHECK(message.find(how) != std::string::npos);
      const auto begin = std::chrono::steady_clock::now();
      CHECK(error_of(device, texts, store.functions()).find(how) != std::string::npos);
      CHECK(std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(5000));
      const int64_t built = build_counters().built;
      std::vector<KernelText> others = texts;
      others.erase(others.begin() + 3);
      build_programs(device, others, store.functions(), "");
      CHECK(build_counters().built == built);
    });
  }
}

TEST_CASE("a kernel that ends its compiler is built without optimisation, with one warning") {
  const WithPool pool(2, "crash optimised");
  for_each_with_binaries([&](Device& device) {
    std::vector<std::string> warnings;
    set_log_sink([&](LogLevel level, const char*, const std::string& message) {
      if (level == LogLevel::kWarning) warnings.push_back(message);
    });
    Store store;
    auto texts = fresh_texts(6, "deadly");
    texts[1].text = "//@options -DUNUSED\n" + texts[1].text + "// deadly\n";
    check_values(device, build_programs(device, texts, store.functions(), ""), texts);
    CHECK(warnings.size() == 2);
    for (const std::string& warning : warnings) CHECK(warning.find(kAborted) != std::string::npos);
    forget_programs();
    const int64_t built = build_counters().built;
    check_values(device, build_programs(device, texts, store.functions(), ""), texts);
    CHECK(build_counters().built == built);
    CHECK(warnings.size() == 2);
    set_log_sink({});
  });
}

TEST_CASE("where no worker starts, this process compiles") {
  for (const std::string mode : {"no start", "missing"}) {
    const WithPool pool(2, mode);
    if (mode == "missing") set_build_pool({2, std::chrono::seconds(60), "/nowhere/worker"});
    for_each_with_binaries([](Device& device) {
      const auto texts = fresh_texts(10);
      const int64_t before = by_workers();
      Store store;
      check_values(device, build_programs(device, texts, store.functions(), ""), texts);
      CHECK(by_workers() == before);
    });
  }
}

TEST_CASE("that no worker starts is said once, with the reason") {
  const WithPool pool(2);
  set_build_pool({2, std::chrono::seconds(60), "/nowhere/worker"});
  std::vector<std::string> warnings;
  std::mutex mutex;
  set_log_sink([&](LogLevel level, const char*, const std::string& message) {
    const std::lock_guard lock(mutex);
    if (level == LogLevel::kWarning) warnings.push_back(message);
  });
  size_t devices = 0;
  for_each_with_binaries([&](Device& device) {
    ++devices;
    for (int again = 0; again < 2; ++again) {
      const auto texts = fresh_texts(10);
      Store store;
      check_values(device, build_programs(device, texts, store.functions(), ""), texts);
    }
  });
  set_log_sink({});
  CHECK(warnings.size() == std::min<size_t>(devices, 1));
  for (const std::string& warning : warnings) {
    CHECK(warning.find("/nowhere/worker") != std::string::npos);
    CHECK(warning.find("compiled in this process") != std::string::npos);
  }
}

TEST_CASE("a text with an error is reported as without workers") {
  const WithPool pool(2);
  for_each_with_binaries([](Device& device) {
    auto texts = fresh_texts(10);
    texts[4].text += "int broken( {\n";
    Store store;
    const std::string message = error_of(device, texts, store.functions());
    CHECK(message.find("kernel k4 does not build") != std::string::npos);
    CHECK(message.find("error") != std::string::npos);
  });
}

#if defined(__linux__)  // /proc lists the workers.
TEST_CASE("workers that are killed at any moment change no result") {
  const WithPool pool(2);
  for_each_with_binaries([](Device& device) {
    std::atomic<bool> done{false};
    std::thread killer([&] {
      for (int round = 0; round < 12 && !done; ++round) {
        std::this_thread::sleep_for(std::chrono::milliseconds(40 + 67 * round));
        for (int child : children()) kill(child, SIGKILL);
      }
    });
    for (int round = 0; round < 4; ++round) {
      const auto texts = fresh_texts(24);
      Store store;
      std::string message;
      try {
        check_values(device, build_programs(device, texts, store.functions(), ""), texts);
        // A kernel is an error if the workers that build it are killed twice.
      } catch (const Error& error) {
        message = error.what();
        CHECK(message.find("signal 9") != std::string::npos);
      }
    }
    done = true;
    killer.join();
  });
}
#endif

TEST_CASE("a worker ends with its parent") {
  const WithPool pool(1);
  for_each_with_binaries([](Device& device) {
    Store store;
    build_programs(device, fresh_texts(10), store.functions(), "");
    std::string problem;
    const auto child = os::Child::start(program_of_tests("ocl_build_worker"), false, problem);
    REQUIRE(child);
    child->channel().close();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (child->is_running() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(std::chrono::steady_clock::now() < deadline);
  });
}
