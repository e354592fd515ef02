// csrc/exec/launch_alone.cpp: see launch_alone.h.
#include "csrc/exec/launch_alone.h"

#include <algorithm>

#include "csrc/runtime/memory/allocator.h"
#include "csrc/runtime/queues/queue.h"
#include "csrc/support/error.h"

namespace ocl::exec {
namespace {

/// Device memory of the regions. The destructor frees it.
struct Regions {
  runtime::Device& device;
  std::vector<void*> addresses;
  ~Regions() {
    for (void* address : addresses) device.allocator().free(address);
  }
};

}  // namespace

void launch_alone(runtime::Device& device, const LoneLaunch& launch, const runtime::BinaryStore& store,
                  const std::string& failed_dir) {
  const auto programs = runtime::build_programs(
      device, {{launch.name, launch.text, "a kernel that is run alone", launch.local}}, store, failed_dir);
  const runtime::KernelHandle kernel = programs.front()->create_kernel(launch.name);
  constexpr int kStream = 0;
  runtime::Queue& queue = device.queue(kStream);
  Regions memory{device, {}};
  for (const LoneLaunch::Region& region : launch.regions) {
    memory.addresses.push_back(device.allocator().allocate(std::max<size_t>(region.bytes, 1), kStream));
    const runtime::Location at = device.allocator().resolve(memory.addresses.back());
    queue.write(at.mem, at.offset_bytes, region.host, region.bytes, /*blocking=*/true);
  }
  for (const LoneLaunch::Pointer& pointer : launch.pointers) {
    OCL_ASSERT(pointer.region >= 0 && pointer.region < static_cast<int>(memory.addresses.size()), "a pointer to no region");
    const runtime::Location at = device.allocator().resolve(memory.addresses[pointer.region]);
    const cl_uint slot = static_cast<cl_uint>(pointer.slot);
    OCL_CHECK(clSetKernelArg(kernel.get(), slot, sizeof(cl_mem), &at.mem), launch.name);
    // Regions are aligned to 128 bytes, so they begin at a whole element of every type.
    OCL_ASSERT(pointer.element_bytes > 0 && at.offset_bytes % static_cast<size_t>(pointer.element_bytes) == 0,
               "a region does not begin at an element");
    const cl_ulong offset =
        at.offset_bytes / static_cast<size_t>(pointer.element_bytes) + static_cast<cl_ulong>(pointer.offset);
    OCL_CHECK(clSetKernelArg(kernel.get(), slot + 1, sizeof(offset), &offset), launch.name);
  }
  for (const LoneLaunch::Int& argument : launch.ints) {
    const cl_uint slot = static_cast<cl_uint>(argument.slot);
    const cl_long wide = argument.value;
    const cl_int narrow = static_cast<cl_int>(argument.value);
    if (argument.wide)
      OCL_CHECK(clSetKernelArg(kernel.get(), slot, sizeof(wide), &wide), launch.name);
    else
      OCL_CHECK(clSetKernelArg(kernel.get(), slot, sizeof(narrow), &narrow), launch.name);
  }
  queue.launch(kernel.get(), 3, launch.global, launch.local, nullptr, runtime::kernel_name_id(launch.name));
  queue.finish();
  for (size_t i = 0; i < launch.regions.size(); ++i) {
    const runtime::Location at = device.allocator().resolve(memory.addresses[i]);
    queue.read(at.mem, at.offset_bytes, launch.regions[i].host, launch.regions[i].bytes, /*blocking=*/true);
  }
  queue.finish();
}

}  // namespace ocl::exec
