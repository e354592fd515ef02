// csrc/codegen/kernel_source.h: a group as OpenCL C: canonical text, argument list, launch sizes.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "csrc/schedule/schedule.h"

namespace ocl::codegen {

/// One buffer argument: a (pointer, element offset) pair of the kernel.
struct BufferArg {
  ir::BufferId buffer = ir::kNone;
  ir::IndexExpr offset;  // elements, added to where the buffer lies
  bool written = false;
  int slot = 0;  // kernel argument of the pointer; its offset is slot + 1
};

struct IntArg {
  ir::IndexExpr value;
  bool wide = false;  // long, otherwise int
  int slot = 0;       // kernel argument
};

/// Everything needed to build and launch a group. Generated kernels take the buffers' pairs in order, then `ints`; templates
/// take their own inputs, the scratch, their own ints, and then the buffers and ints of the epilogue: hence the slots.
struct KernelSource {
  std::string name;  // kind and hash of the body: "sum_3f9c1e"; equal groups give equal text and name
  std::string text;  // complete program, defines one kernel `name`
  std::string kind;  // "pointwise", "reduction", "gemm", ...
  std::vector<BufferArg> buffers;
  std::vector<IntArg> ints;
  std::array<ir::IndexExpr, 3> groups;  // work-groups per dimension
  std::array<size_t, 3> local{1, 1, 1};
  int64_t scratch_elements = 0;  // f32 workspace in elements; 0: none
  int scratch_slot = ir::kNone;  // kernel argument of the workspace's pointer; its offset is scratch_slot + 1
};

/// Throws InternalError that names the group if it cannot be expressed.
KernelSource generate(const schedule::Schedule& schedule, const schedule::Group& group, const Caps& caps);

}  // namespace ocl::codegen
