// csrc/runtime/tensor_core_probes.h: whether a device has tensor cores that inline instructions can use. Whether whole
// kernels work on them is what checks/device_check.h finds out.
#pragma once

#include "csrc/runtime/cl.h"

namespace ocl::runtime {

/// Builds and runs one wgmma instruction and checks its values. Waits for it at most two seconds.
bool probe_wgmma(cl_context context, cl_device_id device, const char* options);
/// The same for one mma instruction, and for ldmatrix, which reads its operand from local memory.
bool probe_mma(cl_context context, cl_device_id device, const char* options);

}  // namespace ocl::runtime
