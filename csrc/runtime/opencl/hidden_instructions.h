// csrc/runtime/opencl/hidden_instructions.h: instructions that a driver's assembler knows but its OpenCL compiler does not.
//
// Kernels write such instructions as inline assembly behind `//@`. For the compiler, the text behind `//@` is a comment, in
// which it only substitutes the operands. The compiler's binary is assembler text. uncover_instructions removes the marks, sets
// a target that has the instructions, and builds that text. A line `//@@...` declares a variable of the program. It moves to
// the head of the program, once. A line `//@@@...` is a directive of the kernel in which it stands, to whose head it moves.
#pragma once

#include <chrono>
#include <string>

#include "csrc/runtime/opencl/cl.h"

namespace ocl::runtime {

/// True if a source has hidden instructions.
bool hides_instructions(const std::string& source);

/// Builds the program again with its hidden instructions. Returns a null handle and sets `status` if the driver refuses
/// it.
ProgramHandle uncover_instructions(cl_context context, cl_device_id device, cl_program program, const char* options,
                                   cl_int* status);

enum class Completion { kDone, kPending, kFailed };
/// Waits for an event for at most `limit`. The driver's own wait has no limit.
Completion wait_within(cl_event event, std::chrono::milliseconds limit);

}  // namespace ocl::runtime
