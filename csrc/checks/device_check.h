// csrc/checks/device_check.h: whether a device's tensor cores multiply right: their kernels are built and run on small random
// operands before a plan relies on them, and the results compared with sums in double.
#pragma once

#include "csrc/ir/graph.h"
#include "csrc/runtime/device.h"
#include "csrc/runtime/program.h"
#include "csrc/support/caps.h"

namespace ocl::checks {

/// `caps` without the kernels that do not build, do not end or give wrong results on the device; one warning for each type of a
/// kernel. Looks only at what the graph needs. A verdict is kept in the process and in `store`.
Caps checked_kernels(runtime::Device& device, const runtime::BinaryStore& store, const ir::Graph& graph, Caps caps);

}  // namespace ocl::checks
