// csrc/runtime/probes/matrix_probes.h: finds out which matrix instructions of a subgroup a device has.
#pragma once

#include <string>

#include "csrc/kernels/caps.h"
#include "csrc/runtime/opencl/cl.h"

namespace ocl::runtime {

/// Sets caps.matrix, and adds the kernels of the level subgroup_matrix for the types that the instructions multiply. Each
/// instruction is built, run and compared with the right values. extensions: those that the device lists.
void probe_matrix_instructions(cl_context context, cl_device_id device, const std::string& extensions, Caps& caps);

}  // namespace ocl::runtime
