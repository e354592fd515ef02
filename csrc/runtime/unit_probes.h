// csrc/runtime/unit_probes.h: whether a device has matrix units that inline instructions reach. What kernels make of them is
// exec/unit_check.h's to find out.
#pragma once

#include "csrc/runtime/cl.h"

namespace ocl::runtime {

/// Builds and runs one matrix instruction of a warpgroup and checks its values; waits at most two seconds for it.
bool probe_wgmma(cl_context context, cl_device_id device, const char* options);
/// The same for one of a warp, with the instruction that reads its operand from local memory.
bool probe_mma(cl_context context, cl_device_id device, const char* options);

}  // namespace ocl::runtime
