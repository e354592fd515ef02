// csrc/exec/launch_alone.h: runs one kernel outside of any plan, on operands in host memory. When a check of a plan fails, it
// leaves a script that runs the failed kernel with this.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "csrc/runtime/build/program.h"
#include "csrc/runtime/device/device.h"

namespace ocl::exec {

/// One launch. Buffer arguments refer to `regions` by number; several may share one, as in an in-place kernel.
struct LoneLaunch {
  std::string name, text;
  std::array<size_t, 3> global{1, 1, 1}, local{1, 1, 1};
  struct Pointer {
    int slot = 0;        // The kernel's argument number of the pointer. The next argument is the offset.
    int region = 0;      // The number of its memory in `regions`.
    int64_t offset = 0;  // Offset in elements from the start of the region.
    int element_bytes = 4;
  };
  std::vector<Pointer> pointers;
  struct Int {
    int slot = 0;
    int64_t value = 0;
    bool wide = false;  // Passed as long if true, otherwise as int.
  };
  std::vector<Int> ints;
  /// Host memory of each region. The launch replaces its contents.
  struct Region {
    void* host = nullptr;
    size_t bytes = 0;
  };
  std::vector<Region> regions;
};

/// Builds the kernel, launches it once and waits. BuildError or DeviceError if that fails.
void launch_alone(runtime::Device& device, const LoneLaunch& launch, const runtime::BinaryStore& store,
                  const std::string& failed_dir);

}  // namespace ocl::exec
