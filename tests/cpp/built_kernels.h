// tests/cpp/built_kernels.h: a store of binaries in memory, and the run of a kernel that writes one float.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <string>

#include "csrc/runtime/build/program.h"
#include "csrc/runtime/device/device.h"
#include "csrc/runtime/memory/allocator.h"
#include "csrc/runtime/queues/queue.h"

/// A store in memory that counts its uses.
struct Store {
  std::map<std::string, std::string> entries;
  int finds = 0;
  ocl::runtime::BinaryStore functions() {
    return {[this](const std::string& key) { return ++finds, entries.count(key) ? entries[key] : std::string(); },
            [this](const std::string& key, const std::string& binary) { entries[key] = binary; },
            {},
            {}};
  }
};

/// Returns y[0] after the kernel `name`(__global float* y) has run.
inline float run(ocl::runtime::Device& device, const ocl::runtime::Program& program, const std::string& name) {
  const ocl::runtime::KernelHandle kernel = program.create_kernel(name);
  void* address = device.allocator().allocate(16);
  const ocl::runtime::Location where = device.allocator().resolve(address);
  REQUIRE(where.offset_bytes == 0);  // The kernel writes element 0.
  cl_mem mem = where.mem;
  clSetKernelArg(kernel.get(), 0, sizeof(mem), &mem);
  device.queue().launch(kernel.get(), 1, {1, 1, 1}, {1, 1, 1});
  float y = 0;
  device.queue().read(where.mem, 0, &y, sizeof(y), true);
  device.allocator().free(address);
  return y;
}
