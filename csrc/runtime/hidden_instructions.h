// csrc/runtime/hidden_instructions.h: instructions that a driver's assembler knows and its OpenCL compiler does not.
//
// Kernels write them as inline assembly behind `//@`: a comment for the compiler, which only substitutes the operands. The
// program's binary is the assembler's text; with the marks removed and the target that has the instructions it is built again.
#pragma once

#include <string>

#include "csrc/runtime/cl.h"

namespace ocl::runtime {

/// Whether a source has hidden instructions.
bool hides_instructions(const std::string& source);

/// The built program with its instructions uncovered. Null handle and a status if the driver refuses it.
ProgramHandle uncover_instructions(cl_context context, cl_device_id device, cl_program program, const char* options,
                                   cl_int* status);

/// Builds and runs a warpgroup matrix product and checks its values; waits at most two seconds for it.
bool probe_wgmma(cl_context context, cl_device_id device, const char* options);

}  // namespace ocl::runtime
