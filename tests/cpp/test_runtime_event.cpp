// tests/cpp/test_runtime_event.cpp: events: waiting, times, errors; memory that several streams use; on every device.
#include <doctest/doctest.h>

#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "csrc/runtime/memory/allocator.h"
#include "csrc/runtime/queues/event.h"
#include "csrc/runtime/queues/gate.h"
#include "csrc/runtime/queues/queue.h"
#include "tests/cpp/runtime_devices.h"

using namespace ocl;
using namespace ocl::runtime;

namespace {
constexpr size_t kMiB = 1 << 20;
}

TEST_CASE("an event is complete when its queue came to it, and has the device's time") {
  for_each_device([](Device& device) {
    Queue& queue = device.queue(device.next_stream());
    const Event first(queue, true);
    Gate gate(queue);
    const Event last(queue, true);
    first.wait();
    CHECK(first.complete());
    CHECK(!last.complete());
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    gate.open();
    last.wait();
    CHECK(last.complete());
    CHECK(last.time_ns() - first.time_ns() >= 25'000'000);
    const Event untimed(queue, false);
    CHECK_THROWS_AS(untimed.time_ns(), Error);
  });
}

// The failure is simulated: different drivers cannot be made to fail in the same way.
TEST_CASE("failed work is an error of the event behind it, not completion") {
  CHECK(completed(CL_COMPLETE, ""));
  for (const cl_int status : {CL_QUEUED, CL_SUBMITTED, CL_RUNNING}) CHECK(!completed(status, ""));
  try {
    completed(CL_OUT_OF_RESOURCES, "'board'");
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kDevice);
    CHECK(std::string(error.what()) == "the work before an event: CL_OUT_OF_RESOURCES (-5), 'board'");
  }
}

TEST_CASE("streams come from a pool, by priority") {
  for_each_device([](Device& device) {
    std::set<int> normal, urgent, patient;
    for (int i = 0; i < 200; ++i) {
      normal.insert(device.next_stream());
      urgent.insert(device.next_stream(-1));
      patient.insert(device.next_stream(3));
    }
    for (const std::set<int>* streams : {&normal, &urgent, &patient})
      CHECK(streams->size() == static_cast<size_t>(Queues::kStreamsPerPriority));
    CHECK(normal.count(0) == 0);
    for (const int stream : urgent) CHECK(normal.count(stream) + patient.count(stream) == 0);
    const uint32_t one = 1;
    void* block = device.allocator().allocate(64, *urgent.begin());
    const Location at = device.allocator().resolve(block);
    device.queue(*urgent.begin()).fill(at.mem, at.offset_bytes, 64, &one, sizeof(one));
    CHECK(device.queue(*urgent.begin()).has_work());
    device.synchronize();
    CHECK(!device.queue(*urgent.begin()).has_work());
    device.allocator().free(block);
  });
}

TEST_CASE("a freed block serves its own stream at once, and no other") {
  for_each_device([](Device& device) {
    Allocator& allocator = device.allocator();
    const int side = device.next_stream(), other = device.next_stream();
    void* a = allocator.allocate(kMiB / 2, side);
    Gate gate(device.queue(side));
    allocator.free(a);
    CHECK(allocator.allocate(kMiB / 2, other) != a);
    CHECK(allocator.allocate(kMiB / 2) != a);
    CHECK(allocator.allocate(kMiB / 2, side) == a);
    gate.open();
    device.synchronize();
  });
}

TEST_CASE("a block waits for each stream that uses it") {
  for_each_device([](Device& device) {
    Allocator& allocator = device.allocator();
    const int first = device.next_stream(), second = device.next_stream();
    void* a = allocator.allocate(kMiB / 2);
    allocator.use(a, first);
    allocator.use(a, second);
    allocator.use(a, 0);
    Gate gate_of_first(device.queue(first)), gate_of_second(device.queue(second));
    const int64_t active = allocator.stats().active_blocks.all().current;
    allocator.free(a);
    CHECK(allocator.stats().active_blocks.all().current == active);
    gate_of_second.open();
    device.queue(second).finish();
    CHECK(allocator.allocate(kMiB / 2) != a);
    gate_of_first.open();
    device.queue(first).finish();
    void* again = nullptr;
    for (int i = 0; i < 1000 && again != a; ++i) again = allocator.allocate(kMiB / 2);
    CHECK(again == a);
  });
}

TEST_CASE("a full device gives one stream what another has freed") {
  for_each_device([](Device& device) {
    Allocator& allocator = device.allocator();
    allocator.empty_cache();
    const int side = device.next_stream();
    const auto piece = static_cast<size_t>(
        std::min<int64_t>(device.caps().max_alloc_bytes - static_cast<int64_t>(kMiB), device.caps().global_bytes / 3));
    std::vector<void*> blocks;
    try {
      for (int i = 0; i < 100; ++i) blocks.push_back(allocator.allocate(piece, side));
    } catch (const Error&) {
    }
    REQUIRE(!blocks.empty());
    allocator.free(blocks.back());
    blocks.pop_back();
    void* other = allocator.allocate(piece);
    CHECK(other != nullptr);
    allocator.free(other);
    for (void* block : blocks) allocator.free(block);
    allocator.empty_cache();
  });
}
