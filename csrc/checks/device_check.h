// csrc/checks/device_check.h: checks whether tensor core kernels give right results on a device. Before a plan relies
// on a kernel, it is built and run on small random operands, and its results are compared with sums in double
// precision.
#pragma once

#include "csrc/ir/graph.h"
#include "csrc/kernels/caps.h"
#include "csrc/runtime/device.h"
#include "csrc/runtime/program.h"

namespace ocl::checks {

/// Returns `caps` without the kernels that do not build, do not end or give wrong results on the device. Logs one
/// warning per kernel and type. Checks only kernels that the graph needs. A verdict is kept in the process and in
/// `store`.
Caps checked_kernels(runtime::Device& device, const runtime::BinaryStore& store, const ir::Graph& graph, Caps caps);

}  // namespace ocl::checks
