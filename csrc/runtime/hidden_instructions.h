// csrc/runtime/hidden_instructions.h: instructions that a driver's assembler knows and its OpenCL compiler does not.
//
// Kernels write them as inline assembly behind `//@`: a comment for the compiler, which only substitutes the operands. The
// program's binary is the assembler's text; with the marks removed and the target that has the instructions it is built again.
#pragma once

#include <chrono>
#include <string>

#include "csrc/runtime/cl.h"

namespace ocl::runtime {

/// Whether a source has hidden instructions.
bool hides_instructions(const std::string& source);

/// The built program with its instructions uncovered. Null handle and a status if the driver refuses it.
ProgramHandle uncover_instructions(cl_context context, cl_device_id device, cl_program program, const char* options,
                                   cl_int* status);

enum class Completion { kDone, kPending, kFailed };
/// Waits for an event without the driver's own unbounded wait.
Completion wait_within(cl_event event, std::chrono::milliseconds limit);

}  // namespace ocl::runtime
