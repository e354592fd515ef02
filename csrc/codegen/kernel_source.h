// csrc/codegen/kernel_source.h: the OpenCL C text of a group, its argument list and its launch sizes.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "csrc/codegen/names.h"

namespace ocl::codegen {

/// A buffer argument: a pointer and an offset.
struct BufferArg {
  ir::BufferId buffer = ir::kNone;
  ir::IndexExpr offset;  // Offset in elements, added to the start of the buffer.
  bool written = false;
  int slot = 0;  // The kernel's argument number of the pointer. The next argument is the offset.
};

struct IntArg {
  ir::IndexExpr value;
  bool wide = false;  // long if true, otherwise int.
  int slot = 0;       // The kernel's argument number.
};

/// Everything needed to build and launch a group. A generated kernel takes the pairs of its buffers in order, then
/// `ints`. A template takes its own inputs, the workspace and its own integers, then the buffers and integers of the
/// epilogue. Because the orders differ, each argument stores its slot.
struct KernelSource {
  // Kind and hash of the program: "sum_3f9c1e". Equal groups have equal text and name.
  std::string name;
  std::string text;  // A complete program, which defines one kernel `name`.
  std::string kind;  // "pointwise", "reduction", "gemm", ...
  std::vector<BufferArg> buffers;
  std::vector<IntArg> ints;
  std::array<ir::IndexExpr, 3> groups;  // Work-groups in each dimension.
  std::array<size_t, 3> local{1, 1, 1};
  int64_t scratch_elements = 0;  // Size of the workspace in f32 elements. 0: there is none.
  // The kernel's argument number of the workspace's pointer. The next argument is its offset.
  int scratch_slot = ir::kNone;
};

}  // namespace ocl::codegen
