// tests/cpp/test_runtime_enqueue_thread.cpp: posted commands run in their order, and a failure of one is raised once.
#include <doctest/doctest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "csrc/runtime/build/program.h"
#include "csrc/runtime/queues/queue.h"
#include "csrc/support/error.h"
#include "tests/cpp/runtime_devices.h"

using namespace ocl;
using namespace ocl::runtime;

namespace {

using Kind = PostedCommand::Kind;
constexpr std::array<size_t, 3> kOne{1, 1, 1};
constexpr char kText[] = "//@kernel\n__kernel void advance(__global ulong* x, ulong n) { x[0] = x[0] * 3 + n; }\n";

/// A number in a buffer of its own, and the kernel that changes it.
struct Number {
  Number(Device& device, uint64_t value)
      : kernel(build_programs(device, {{"advance", kText, "a test", {1, 1, 1}}}, {}, "")[0]->create_kernel("advance")) {
    cl_int status = CL_SUCCESS;
    memory = MemHandle(clCreateBuffer(device.info().context.get(), CL_MEM_READ_WRITE, 64, nullptr, &status));
    REQUIRE(status == CL_SUCCESS);
    device.queue().write(memory.get(), 0, &value, sizeof value, true);
  }
  void post_memory(Queue& queue) const {
    const cl_mem mem = memory.get();
    PostedCommand command{.kind = Kind::kArgument, .kernel = kernel.get()};
    std::memcpy(command.value.data(), &mem, sizeof mem);
    queue.post(command);
  }
  void post_argument(Queue& queue, cl_uint slot, uint64_t value) const {
    queue.post({.kind = Kind::kArgument, .kernel = kernel.get(), .slot = slot, .value = {value, 0}});
  }
  void post_launch(Queue& queue) const {
    queue.post({.kind = Kind::kLaunch, .kernel = kernel.get(), .global = &kOne, .local = &kOne});
  }
  uint64_t read(Queue& queue) const {
    uint64_t value = 0;
    queue.read(memory.get(), 0, &value, sizeof value, true);
    return value;
  }

  MemHandle memory;
  KernelHandle kernel;
};

}  // namespace

TEST_CASE("posted commands run in their order, between commands that are enqueued at once") {
  for_each_device([](Device& device) {
    set_enqueue_threads(EnqueueThreads::kAlways);
    Queue& queue = device.queue();
    uint64_t expected = 7;
    const Number x(device, expected);
    x.post_memory(queue);
    // More commands than can wait.
    for (uint64_t i = 0; i < 2 * EnqueueThread::kCapacity; ++i) {
      x.post_argument(queue, 1, i);
      x.post_launch(queue);
      expected = expected * 3 + i;
      if (i % 1000 != 999) continue;
      expected = i;
      queue.fill(x.memory.get(), 0, sizeof expected, &expected, sizeof expected);
    }
    queue.post({.kind = Kind::kFlush});
    CHECK(queue.has_work());
    CHECK(x.read(queue) == expected);
    CHECK_FALSE(queue.has_posted());
    queue.finish();
    set_enqueue_threads(EnqueueThreads::kNever);
  });
}

TEST_CASE("a posted command that fails is an error of a later call, and those after it are dropped") {
  for_each_device([](Device& device) {
    set_enqueue_threads(EnqueueThreads::kAlways);
    Queue& queue = device.queue();
    const Number x(device, 5);
    const uint64_t failures = queue.posted_failures();
    const auto fail_and_wait = [&] {
      x.post_memory(queue);
      x.post_argument(queue, 9, 1);  // There is no such argument.
      x.post_argument(queue, 1, 1);
      x.post_launch(queue);
      queue.finish();
    };
    CHECK_THROWS_WITH_AS(fail_and_wait(), doctest::Contains("kernel advance"), Error);
    CHECK(queue.posted_failures() == failures + 1);
    CHECK(x.read(queue) == 5);
    x.post_memory(queue);
    x.post_argument(queue, 1, 1);
    x.post_launch(queue);
    CHECK(x.read(queue) == 16);
    set_enqueue_threads(EnqueueThreads::kNever);
  });
}

TEST_CASE("several threads post, and the queue's thread wakes after a pause") {
  for_each_device([](Device& device) {
    set_enqueue_threads(EnqueueThreads::kAlways);
    Queue& queue = device.queue();
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 40; ++i) {
          queue.post({.kind = Kind::kFlush});
          if (i % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
      });
    for (std::thread& thread : threads) thread.join();
    queue.drain_or_throw();
    CHECK_FALSE(queue.has_posted());
    const Number x(device, 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    x.post_memory(queue);
    x.post_argument(queue, 1, 4);
    x.post_launch(queue);
    CHECK(x.read(queue) == 4);
    set_enqueue_threads(EnqueueThreads::kNever);
  });
}
