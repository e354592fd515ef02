// csrc/checks/device_check.h: checks whether tensor core kernels give right results on a device. Before a plan relies
// on a kernel, it is built and run on small random operands, and its results are compared with sums in double
// precision.
#pragma once

#include <string>
#include <vector>

#include "csrc/ir/graph.h"
#include "csrc/kernels/caps.h"
#include "csrc/runtime/device.h"
#include "csrc/runtime/program.h"

namespace ocl::checks {

/// Returns `caps` without the kernels that do not build, do not end or give wrong results on the device. Logs one
/// warning per kernel and type. Checks only kernels that the graph needs. A verdict is kept in the process and in
/// `store`.
Caps checked_kernels(runtime::Device& device, const runtime::BinaryStore& store, const ir::Graph& graph, Caps caps);

/// A tensor core kernel with one of its types.
struct CheckedKernel {
  KernelId id;
  KernelType type;
};

/// Returns the kernels and types that have a check and whose instructions the device has. Empty without tensor cores.
std::vector<CheckedKernel> kernels_to_check(const runtime::Device& device);

/// Checks one kernel, like checked_kernels. Returns what is wrong with it, or "".
std::string fault_of_kernel(runtime::Device& device, const runtime::BinaryStore& store, const CheckedKernel& kernel);

}  // namespace ocl::checks
