// csrc/runtime/probes/tensor_core_probes.h: finds out whether inline instructions can use the device's tensor cores.
// checks/device_check.h checks whole kernels.
#pragma once

#include "csrc/runtime/opencl/cl.h"

namespace ocl::runtime {

/// Builds and runs one wgmma instruction and checks its values. Waits at most two seconds.
bool probe_wgmma(cl_context context, cl_device_id device, const char* options);
/// Does the same for one mma instruction and for ldmatrix, which loads its operand from local memory. With the option
/// "-D HALVES" in fp16, otherwise in TF32.
bool probe_mma(cl_context context, cl_device_id device, const char* options);

}  // namespace ocl::runtime
