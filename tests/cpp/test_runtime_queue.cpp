// tests/cpp/test_runtime_queue.cpp: copies, fills, launches, events and recording; on every device.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

#include "csrc/runtime/build/program.h"
#include "csrc/runtime/memory/allocator.h"
#include "csrc/runtime/queues/queue.h"
#include "csrc/runtime/record/history.h"
#include "tests/cpp/runtime_devices.h"

using namespace ocl;
using namespace ocl::runtime;

namespace {

/// A block that frees itself in its destructor.
struct Memory {
  Memory(Device& device_, size_t bytes)
      : device(device_), address(device.allocator().allocate(bytes)), where(device.allocator().resolve(address)) {}
  ~Memory() { device.allocator().free(address); }
  Device& device;
  void* address;
  Location where;
};

std::vector<uint8_t> numbers(size_t count, int seed) {
  std::vector<uint8_t> data(count);
  for (size_t i = 0; i < count; ++i) data[i] = static_cast<uint8_t>(seed + 31 * i + i / 251);
  return data;
}

KernelHandle kernel_of(Device& device, const std::string& name, const std::string& text) {
  return build_programs(device, {{name, text, "a test", {1, 1, 1}}}, {}, "")[0]->create_kernel(name);
}

}  // namespace

TEST_CASE("copies respect offsets and sizes") {
  for_each_device([](Device& device) {
    Queue& queue = device.queue();
    Memory a(device, 10000), b(device, 10000);
    const std::vector<uint8_t> data = numbers(10000, 1);
    queue.write(a.where.mem, a.where.offset_bytes, data.data(), data.size(), true);
    for (size_t bytes : {size_t{0}, size_t{1}, size_t{3}, size_t{4097}}) {
      const uint8_t zero = 0;
      queue.fill(b.where.mem, b.where.offset_bytes, 10000, &zero, 1);
      queue.copy(a.where.mem, a.where.offset_bytes + 5, b.where.mem, b.where.offset_bytes + 11, bytes);
      std::vector<uint8_t> got(10000, 0xee);
      queue.read(b.where.mem, b.where.offset_bytes, got.data(), got.size(), true);
      std::vector<uint8_t> expected(10000, 0);
      std::copy_n(data.begin() + 5, bytes, expected.begin() + 11);
      CHECK(got == expected);
    }
    std::vector<uint8_t> part(100, 0);
    queue.read(a.where.mem, a.where.offset_bytes + 777, part.data(), part.size(), false);
    queue.finish();
    CHECK(std::equal(part.begin(), part.end(), data.begin() + 777));
    // A copy onto itself does nothing.
    queue.copy(a.where.mem, a.where.offset_bytes, a.where.mem, a.where.offset_bytes, 10000);
    // A copy within one buffer.
    queue.copy(a.where.mem, a.where.offset_bytes, a.where.mem, a.where.offset_bytes + 5000, 5000);
    queue.read(a.where.mem, a.where.offset_bytes + 5000, part.data(), part.size(), true);
    CHECK(std::equal(part.begin(), part.end(), data.begin()));
  });
}

TEST_CASE("fills of each pattern size stay within their range") {
  for_each_device([](Device& device) {
    Queue& queue = device.queue();
    Memory memory(device, 4096);
    const std::vector<uint8_t> pattern = numbers(16, 100);
    for (size_t pattern_bytes : {1, 2, 4, 8, 16}) {
      const uint8_t zero = 0;
      queue.fill(memory.where.mem, memory.where.offset_bytes, 4096, &zero, 1);
      std::vector<uint8_t> copy = pattern;
      queue.fill(memory.where.mem, memory.where.offset_bytes + 3 * pattern_bytes, 33 * pattern_bytes, copy.data(),
                 pattern_bytes);
      // The queue has copied the pattern, so changing it now must not matter.
      std::fill(copy.begin(), copy.end(), 0xcc);
      queue.fill(memory.where.mem, memory.where.offset_bytes, 0, copy.data(), pattern_bytes);
      std::vector<uint8_t> got(4096);
      queue.read(memory.where.mem, memory.where.offset_bytes, got.data(), got.size(), true);
      for (size_t i = 0; i < got.size(); ++i) {
        const bool inside = i >= 3 * pattern_bytes && i < 36 * pattern_bytes;
        REQUIRE(got[i] == (inside ? pattern[i % pattern_bytes] : 0));
      }
    }
  });
}

TEST_CASE("launches run in order; an empty one does nothing") {
  for_each_device([](Device& device) {
    Queue& queue = device.queue();
    Memory memory(device, 64 * sizeof(int));
    const auto kernel = kernel_of(device, "double_plus_one",
                                  "__kernel void double_plus_one(__global int* p, const ulong o) { p[o + get_global_id(0)] = 2 "
                                  "* p[o + get_global_id(0)] + 1; }");
    cl_mem mem = memory.where.mem;
    const cl_ulong offset = memory.where.offset_bytes / sizeof(int);
    clSetKernelArg(kernel.get(), 0, sizeof(mem), &mem);
    clSetKernelArg(kernel.get(), 1, sizeof(offset), &offset);
    const int zero = 0;
    queue.fill(memory.where.mem, memory.where.offset_bytes, 64 * sizeof(int), &zero, sizeof(zero));
    for (int i = 0; i < 10; ++i) queue.launch(kernel.get(), 1, {32, 1, 1}, {1, 1, 1});
    cl_event none = reinterpret_cast<cl_event>(1);
    queue.launch(kernel.get(), 1, {0, 1, 1}, {1, 1, 1}, &none);
    CHECK(none == nullptr);
    std::vector<int> got(64);
    queue.read(memory.where.mem, memory.where.offset_bytes, got.data(), 64 * sizeof(int), true);
    for (int i = 0; i < 64; ++i) CHECK(got[i] == (i < 32 ? 1023 : 0));
  });
}

TEST_CASE("a launch that the driver refuses names kernel, sizes and device") {
  for_each_device([](Device& device) {
    const auto kernel = kernel_of(device, "refused", "__kernel void refused(__global int* p) { p[0] = 1; }");
    Memory memory(device, 64);
    cl_mem mem = memory.where.mem;
    clSetKernelArg(kernel.get(), 0, sizeof(mem), &mem);
    std::string message;
    try {
      device.queue().launch(kernel.get(), 1, {7, 1, 1}, {1 << 24, 1, 1});
    } catch (const Error& error) {
      message = error.what();
      CHECK(error.kind() == ErrorKind::kDevice);
    }
    for (const std::string& part :
         {std::string("clEnqueueNDRangeKernel: CL_INVALID_"), std::string("refused"), std::string("16777216"), device.name()})
      CHECK_MESSAGE(message.find(part) != std::string::npos, message);
    device.synchronize();
  });
}

TEST_CASE("a stream waits for another's event") {
  for_each_device([](Device& device) {
    const int stream = device.next_stream();
    CHECK(stream > 0);
    CHECK(&device.queue(stream) == &device.queue(stream));
    CHECK(&device.queue(stream) != &device.queue());
    CHECK_THROWS_AS(device.queue(Queues::kStreams), Error);
    CHECK_THROWS_AS(device.queue(-1), Error);
    Memory memory(device, 1 << 20);
    std::vector<uint8_t> got(1 << 20);
    for (int round = 1; round < 20; ++round) {
      const auto byte = static_cast<uint8_t>(round);
      device.queue().fill(memory.where.mem, memory.where.offset_bytes, got.size(), &byte, 1);
      const EventHandle done = device.queue().marker();
      device.queue(stream).wait_for(done.get());
      device.queue(stream).read(memory.where.mem, memory.where.offset_bytes, got.data(), got.size(), true);
      CHECK(std::all_of(got.begin(), got.end(), [&](uint8_t value) { return value == byte; }));
    }
    device.synchronize();
  });
}

TEST_CASE("names have one number each") {
  const int a = kernel_name_id("sum_1"), b = kernel_name_id("sum_2");
  CHECK(a > 0);
  CHECK(a != b);
  CHECK(kernel_name_id("sum_1") == a);
}

TEST_CASE("an error names what was launched before it, latest first") {
  for_each_device([](Device& device) {
    const auto kernel = kernel_of(device, "noop_kernel", "__kernel void noop_kernel(__global int* p) { p[0] = 1; }");
    Memory memory(device, 64);
    cl_mem mem = memory.where.mem;
    clSetKernelArg(kernel.get(), 0, sizeof(mem), &mem);
    Queue& queue = device.queue();
    queue.finish();
    for (int i = 0; i < 40; ++i)
      queue.launch(kernel.get(), 1, {1, 1, 1}, {1, 1, 1}, nullptr, kernel_name_id("launch_" + std::to_string(i)));
    std::string message;
    try {
      queue.copy(nullptr, 0, nullptr, 4, 4);
    } catch (const Error& error) {
      message = error.what();
    }
    CHECK(message.find("launch_39, launch_38") != std::string::npos);
    CHECK(message.find("launch_3,") == std::string::npos);
    queue.finish();
    try {
      queue.copy(nullptr, 0, nullptr, 4, 4);
    } catch (const Error& error) {
      message = error.what();
    }
    // The launches had ended before this failure, so the message does not name them.
    CHECK(message.find("launch_") == std::string::npos);
  });
}

TEST_CASE("recording: nested, with times") {
  for_each_device([](Device& device) {
    const auto kernel = kernel_of(device, "recorded",
                                  "__kernel void recorded(__global int* p) { for (int i = 0; i < 1000; ++i) p[i % 16] += i; }");
    Memory memory(device, 64);
    cl_mem mem = memory.where.mem;
    clSetKernelArg(kernel.get(), 0, sizeof(mem), &mem);
    const auto launch = [&](const std::string& name) {
      LaunchInfo info;
      info.kernel = name;
      device.queue().launch(kernel.get(), 1, {1, 1, 1}, {1, 1, 1}, nullptr, 0, std::make_shared<const LaunchInfo>(info));
    };
    const auto names = [](const std::vector<CommandRecord>& records) {
      std::vector<std::string> list;
      for (const CommandRecord& record : records) list.push_back(record.info ? record.info->kernel : name(record.type));
      return list;
    };
    using Names = std::vector<std::string>;
    launch("unseen");
    const int outer = begin_recording(true);
    launch("outer 1");
    const int inner = begin_recording(false), all = begin_recording(false, true);
    CHECK(wanted() == (kLaunches | kTimes | kAllCommands));
    launch("inner");
    const uint32_t zero = 0;
    device.queue().fill(mem, memory.where.offset_bytes, 64, &zero, sizeof(zero));
    const auto of_outer_while_open = end_recording(outer);
    launch("late");
    const auto of_inner = end_recording(inner), of_all = end_recording(all);
    launch("unseen");
    CHECK(wanted() == 0);
    CHECK(end_recording(inner).empty());
    CHECK(names(of_outer_while_open) == Names{"outer 1", "inner"});
    CHECK(names(of_inner) == Names{"inner", "late"});
    CHECK(names(of_all) == Names{"inner", "fill", "late"});
    CHECK(of_all[1].bytes == 64);
    for (const CommandRecord& record : of_outer_while_open) {
      CHECK(record.queued_ns > 0);
      CHECK(record.queued_ns <= record.start_ns);
      CHECK(record.start_ns < record.end_ns);
      CHECK(record.called_ns <= record.returned_ns);
    }
    CHECK(of_outer_while_open[0].end_ns <= of_outer_while_open[1].start_ns);
    CHECK(of_inner[0].start_ns == 0);

    // More commands than the recording keeps events for at the same time.
    const int many = begin_recording(true);
    for (int i = 0; i < 10000; ++i) device.queue().fill(mem, memory.where.offset_bytes, 4, &zero, sizeof(zero));
    for (int i = 0; i < 5000; ++i) launch("many");
    const auto of_many = end_recording(many);
    CHECK(of_many.size() == 5000);
    CHECK(std::all_of(of_many.begin(), of_many.end(), [](const CommandRecord& r) { return r.end_ns > r.start_ns; }));
    device.synchronize();
  });
}
