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
  ir::IndexExpr offset;   // elements, added to where the buffer lies
  bool written = false;
};

struct IntArg {
  ir::IndexExpr value;
  bool wide = false;      // long, otherwise int
};

/// Everything needed to build and launch a group. Arguments: the buffers' pairs in order, then `ints`.
struct KernelSource {
  std::string name;       // kind and hash of the body: "sum_3f9c1e"; equal groups give equal text and name
  std::string text;       // complete program, defines one kernel `name`
  std::string kind;       // "pointwise", "reduction", "gemm", ...
  std::vector<BufferArg> buffers;
  std::vector<IntArg> ints;
  std::array<ir::IndexExpr, 3> groups;   // work-groups per dimension
  std::array<size_t, 3> local{1, 1, 1};
  int64_t scratch_elements = 0;          // f32 workspace in elements, passed as the last buffer (buffer id kNone)
};

/// Throws InternalError that names the group if it cannot be expressed.
KernelSource generate(const schedule::Schedule& schedule, const schedule::Group& group, const Caps& caps);

}  // namespace ocl::codegen
