// csrc/runtime/probes/probe_program.h: builds and runs the small programs that find out which instructions a device has.
#pragma once

#include <vector>

#include "csrc/runtime/opencl/cl.h"

namespace ocl::runtime {

/// Returns the built program, or an empty handle.
ProgramHandle build_probe_program(cl_context context, cl_device_id device, const char* text, const char* options);
/// Runs kernel "k" with one work-group of `items` work-items. Its only argument is a buffer of `count` floats, which is
/// returned. Empty if the kernel does not run, or not within two seconds.
std::vector<float> run_probe(cl_context context, cl_device_id device, cl_program program, size_t items, size_t count);

}  // namespace ocl::runtime
