// tests/cpp/test_runtime_allocator.cpp: addresses, splitting, coalescing, statistics, running out of memory; on every
// device.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "csrc/runtime/memory/allocator.h"
#include "csrc/runtime/queues/queue.h"
#include "tests/cpp/other_process.h"
#include "tests/cpp/runtime_devices.h"

using namespace ocl;
using namespace ocl::runtime;

namespace {

constexpr size_t kMiB = 1 << 20;

char* at(void* address, size_t offset) { return static_cast<char*>(address) + offset; }

const other_process::Role kReader("reader of device memory", [](os::Channel&, const os::Message& arguments) {
  configure_test_devices();
  const volatile char c = *static_cast<volatile char*>(Device::get(std::stoi(arguments[0])).allocator().allocate(4096));
  return os::Message{"read " + std::to_string(c)};
});

}  // namespace

TEST_CASE("an address maps to its buffer, offset and rest") {
  for_each_device([](Device& device) {
    Allocator& allocator = device.allocator();
    CHECK(allocator.allocate(0) == nullptr);
    void* a = allocator.allocate(1000);
    void* b = allocator.allocate(1000);
    REQUIRE(a);
    REQUIRE(b);
    CHECK(a != b);
    CHECK(reinterpret_cast<uintptr_t>(a) % static_cast<uintptr_t>(device.caps().base_align_bytes) == 0);
    const Location first = allocator.resolve(a), middle = allocator.resolve(at(a, 999)), end = allocator.resolve(at(a, 1000));
    CHECK(first.mem == middle.mem);
    CHECK(middle.offset_bytes == first.offset_bytes + 999);
    CHECK(first.offset_bytes % static_cast<size_t>(device.caps().base_align_bytes) == 0);
    CHECK(first.remaining_bytes == 1000);
    CHECK(middle.remaining_bytes == 1);
    CHECK(end.remaining_bytes == 0);
    CHECK(allocator.owns(a));
    CHECK(!allocator.owns(&allocator));
    CHECK(device_of(a) == &device);
    CHECK(device_of(&allocator) == nullptr);
    allocator.free(a);
    CHECK_THROWS_AS(allocator.resolve(at(a, 10)), Error);
    CHECK_THROWS_AS(allocator.resolve(&allocator), Error);
    allocator.free(b);
    allocator.free(nullptr);
    allocator.free(b);  // A second free changes nothing.
    CHECK(allocator.stats().allocated_bytes.all().current == 0);
  });
}

TEST_CASE("one past the end is never the neighbour, at any size") {
  for_each_device([](Device& device) {
    Allocator& allocator = device.allocator();
    std::vector<std::pair<void*, size_t>> blocks;
    for (size_t bytes : {size_t{1}, size_t{127}, size_t{128}, size_t{129}, size_t{4096}, kMiB - 1, kMiB, kMiB + 1,
                         32 * kMiB - 1, 32 * kMiB, 64 * kMiB})
      for (int i = 0; i < 3; ++i) blocks.emplace_back(allocator.allocate(bytes), bytes);
    for (const auto& [address, bytes] : blocks) {
      const Location begin = allocator.resolve(address), end = allocator.resolve(at(address, bytes));
      CHECK(begin.remaining_bytes == bytes);
      CHECK(end.remaining_bytes == 0);
      CHECK(end.mem == begin.mem);
    }
    for (const auto& [address, bytes] : blocks) allocator.free(address);
    const uint64_t released = allocator.slabs_released();
    allocator.empty_cache();
    CHECK(allocator.stats().reserved_bytes.all().current == 0);
    CHECK(allocator.slabs_released() > released);
  });
}

TEST_CASE("random allocations never overlap, hold their data and come back together") {
  for_each_device([](Device& device) {
    Allocator& allocator = device.allocator();
    Queue& queue = device.queue();
    std::mt19937 random(17);
    std::map<char*, std::pair<size_t, uint8_t>> live;  // Address -> (size, byte that fills the block).
    for (int step = 0; step < 1500; ++step) {
      if (live.size() < 30 || random() % 2) {
        const size_t bytes = 1 + (random() % 8 ? random() % 5000 : random() % (3 * kMiB));
        char* address = static_cast<char*>(allocator.allocate(bytes));
        const auto next = live.lower_bound(address);
        if (next != live.end()) REQUIRE(address + bytes < next->first);
        if (next != live.begin()) REQUIRE(std::prev(next)->first + std::prev(next)->second.first < address);
        const auto byte = static_cast<uint8_t>(random());
        const Location where = allocator.resolve(address);
        queue.fill(where.mem, where.offset_bytes, bytes, &byte, 1);
        live[address] = {bytes, byte};
      } else {
        const auto victim = std::next(live.begin(), static_cast<long>(random() % live.size()));
        const Location where = allocator.resolve(victim->first);
        std::vector<uint8_t> data(victim->second.first);
        queue.read(where.mem, where.offset_bytes, data.data(), data.size(), true);
        REQUIRE(std::all_of(data.begin(), data.end(), [&](uint8_t byte) { return byte == victim->second.second; }));
        allocator.free(victim->first);
        live.erase(victim);
      }
    }
    for (const auto& [address, block] : live) allocator.free(address);
    CHECK(allocator.stats().allocated_bytes.all().current == 0);
    allocator.empty_cache();
    // All blocks have coalesced into whole slabs.
    CHECK(allocator.stats().reserved_bytes.all().current == 0);
  });
}

TEST_CASE("a snapshot has the blocks with their purposes, and a limit is kept") {
  for_each_device([](Device& device) {
    Allocator& allocator = device.allocator();
    allocator.empty_cache();
    void *plain = allocator.allocate(1000), *named = nullptr;
    {
      const MemoryPurpose outer(std::make_shared<const std::string>("outer")),
          inner(std::make_shared<const std::string>("inner"));
      named = allocator.allocate(3 * kMiB);
    }
    CHECK(MemoryPurpose::current() == nullptr);
    size_t found = 0;
    for (const SegmentInfo& segment : allocator.snapshot().segments) {
      int64_t bytes = 0;
      for (const BlockInfo& block : segment.blocks) {
        bytes += block.bytes;
        if (block.address == reinterpret_cast<uintptr_t>(plain)) found += block.requested == 1000 && !block.purpose;
        if (block.address == reinterpret_cast<uintptr_t>(named)) found += block.purpose && *block.purpose == "inner";
      }
      CHECK(bytes == segment.bytes);
    }
    CHECK(found == 2);
    const int64_t reserved = allocator.stats().reserved_bytes.all().current;
    allocator.set_fraction(static_cast<double>(reserved) / static_cast<double>(device.caps().global_bytes));
    std::string message;
    try {
      allocator.allocate(100 * kMiB);
    } catch (const Error& error) {
      message = error.what();
    }
    allocator.set_fraction(1);
    CHECK(message.find("largest holders: 3.00 MiB in 1 block: inner; 0.00 MiB in 1 block: other tensors") != std::string::npos);
    CHECK(message.find("set_per_process_memory_fraction") != std::string::npos);
    allocator.free(plain);
    allocator.free(named);
    allocator.empty_cache();
  });
}

TEST_CASE("tensors share buffers, and freed memory is used again") {
  for_each_device([](Device& device) {
    Allocator& allocator = device.allocator();
    allocator.empty_cache();
    std::vector<void*> blocks;
    for (int i = 0; i < 200; ++i) blocks.push_back(allocator.allocate(10000));
    for (void* block : blocks) CHECK(allocator.resolve(block).mem == allocator.resolve(blocks[0]).mem);
    const int64_t reserved = allocator.stats().reserved_bytes.all().current;
    for (void* block : blocks) allocator.free(block);
    for (int round = 0; round < 10; ++round) {
      blocks.clear();
      for (int i = 0; i < 200; ++i) blocks.push_back(allocator.allocate(static_cast<size_t>(1000 + 40 * i)));
      for (void* block : blocks) allocator.free(block);
    }
    CHECK(allocator.stats().reserved_bytes.all().current == reserved);
    // A small tensor must not be placed in a large free block, which could then not be used as a whole.
    void* large = allocator.allocate(100 * kMiB);
    allocator.free(large);
    void* small = allocator.allocate(2 * kMiB);
    CHECK(allocator.allocate(100 * kMiB) == large);
    allocator.free(large);
    allocator.free(small);
    allocator.empty_cache();
  });
}

TEST_CASE("statistics follow, peaks reset") {
  for_each_device([](Device& device) {
    Allocator& allocator = device.allocator();
    allocator.empty_cache();
    allocator.reset_peaks();
    const MemoryStats before = allocator.stats();
    void* a = allocator.allocate(3 * kMiB);
    void* b = allocator.allocate(5 * kMiB);
    CHECK(allocator.stats().allocated_bytes.all().current - before.allocated_bytes.all().current >=
          static_cast<int64_t>(8 * kMiB));
    CHECK(allocator.stats().allocated_bytes.all().current - before.allocated_bytes.all().current <
          static_cast<int64_t>(9 * kMiB));
    CHECK(allocator.stats().reserved_bytes.all().current >= allocator.stats().allocated_bytes.all().current);
    allocator.free(b);
    CHECK(allocator.stats().allocated_bytes.all().peak - before.allocated_bytes.all().current >=
          static_cast<int64_t>(8 * kMiB));
    allocator.reset_peaks();
    CHECK(allocator.stats().allocated_bytes.all().peak == allocator.stats().allocated_bytes.all().current);
    allocator.free(a);
    CHECK(allocator.stats().blocks.all().allocated - before.blocks.all().allocated == 2);
    CHECK(allocator.stats().blocks.all().freed - before.blocks.all().freed == 2);
    allocator.empty_cache();
  });
}

TEST_CASE("running out: cached memory is freed first, then the error has the sizes") {
  for_each_device([](Device& device) {
    Allocator& allocator = device.allocator();
    allocator.empty_cache();
    const int64_t limit = device.caps().global_bytes, most = device.caps().max_alloc_bytes;
    const MemoryStats before = allocator.stats();
    // On devices that use the host's memory, allocated pages are not touched, so this uses addresses, but no memory.
    std::vector<void*> blocks;
    const auto piece = static_cast<size_t>(std::min<int64_t>(most - static_cast<int64_t>(kMiB), limit / 3));
    std::string message;
    ErrorKind kind = ErrorKind::kInternal;
    try {
      for (int i = 0; i < 100; ++i) blocks.push_back(allocator.allocate(piece));
    } catch (const Error& error) {
      message = error.what();
      kind = error.kind();
    }
    REQUIRE(!blocks.empty());
    CHECK(kind == ErrorKind::kOutOfMemory);
    CHECK(allocator.stats().failures - before.failures == 1);
    CHECK(message.find(device.name()) != std::string::npos);
    for (const char* part : {"tried to allocate", "allocated", "reserved", "in total", "GiB", "do:"})
      CHECK(message.find(part) != std::string::npos);
    for (void* block : blocks) allocator.free(block);
    // All memory is now cached in pieces; a request that fits no cached slab must still succeed.
    void* other = allocator.allocate(piece / 2 + kMiB);
    void* another = allocator.allocate(piece + kMiB / 2);
    CHECK(other);
    CHECK(another);
    allocator.free(other);
    allocator.free(another);
    allocator.empty_cache();
    CHECK_THROWS_AS(allocator.allocate(static_cast<size_t>(most) + kMiB), Error);
    CHECK_THROWS_AS(allocator.allocate(size_t{1} << 50), Error);
    CHECK_THROWS_AS(allocator.allocate(~size_t{0}), Error);
    CHECK(allocator.stats().allocated_bytes.all().current == before.allocated_bytes.all().current);
  });
}

TEST_CASE("a block that another stream uses is not handed out before that stream is done with it") {
  for_each_device([](Device& device) {
    Allocator& allocator = device.allocator();
    const int stream = device.next_stream();
    void* a = allocator.allocate(kMiB / 2);
    allocator.record_stream(at(a, 100), stream);
    allocator.record_stream(a, stream);
    // The other stream waits for an event that this test completes later, so its work has not ended yet.
    cl_int status = 0;
    cl_event gate = clCreateUserEvent(device.context(), &status);
    REQUIRE(status == CL_SUCCESS);
    device.queue(stream).wait_for(gate);
    allocator.free(a);
    CHECK(allocator.stats().allocated_bytes.all().current == 0);
    void* b = allocator.allocate(kMiB / 2);
    CHECK(b != a);
    clSetUserEventStatus(gate, CL_COMPLETE);
    clReleaseEvent(gate);
    device.synchronize();
    allocator.free(b);
    // The request fits only if both blocks were freed and coalesced.
    void* c = allocator.allocate(kMiB - 1000);
    CHECK(c == std::min(a, b));
    allocator.free(c);
    allocator.empty_cache();
    CHECK(allocator.stats().reserved_bytes.all().current == 0);
  });
}

TEST_CASE("threads allocate at once") {
  for_each_device([](Device& device) {
    Allocator& allocator = device.allocator();
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        std::mt19937 random(static_cast<unsigned>(t));
        std::vector<std::pair<void*, size_t>> mine;
        for (int i = 0; i < 3000; ++i) {
          if (mine.size() < 20) {
            const size_t bytes = 1 + random() % 100000;
            mine.emplace_back(allocator.allocate(bytes), bytes);
          } else {
            const auto [address, bytes] = mine[random() % mine.size()];
            if (allocator.resolve(address).remaining_bytes != bytes) ++wrong;
            std::erase_if(mine, [address = address](const auto& block) { return block.first == address; });
            allocator.free(address);
          }
        }
        for (const auto& [address, bytes] : mine) allocator.free(address);
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
    CHECK(allocator.stats().allocated_bytes.all().current == 0);
    allocator.empty_cache();
    CHECK(allocator.stats().reserved_bytes.all().current == 0);
  });
}

TEST_CASE("the host sees a CPU device's memory, and only through `host`") {
  for_each_device([](Device& device) {
    Allocator& allocator = device.allocator();
    void* a = allocator.allocate(4096);
    const Location where = allocator.resolve(at(a, 8));
    const int64_t sent = 0x123456789abcdefLL;
    device.queue().write(where.mem, where.offset_bytes, &sent, sizeof(sent), true);
    device.queue().finish();
    if (device.caps().is_cpu && where.host) CHECK(std::memcmp(where.host, &sent, sizeof(sent)) == 0);
    const os::Message end = other_process::in_other_process("reader of device memory", {std::to_string(device.index())});
    CHECK_MESSAGE(other_process::is_bad_access(end), end.at(0));
    allocator.free(a);
    allocator.empty_cache();
  });
}
