// csrc/runtime/opencl/compile.h: compiles program texts with the driver's compiler in this process.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "csrc/runtime/opencl/binary.h"

namespace ocl::runtime {

/// If the first line of a program text begins with this marker, compiler options follow in that line. They are added to the
/// device's options.
inline constexpr char kOptionsMarker[] = "//@options ";

/// Returns the text with an option that switches the compiler's optimisation off.
std::string without_optimisation(const std::string& source);

/// A program, or what went wrong while it was built.
struct Built {
  ProgramHandle handle;
  cl_int status = CL_SUCCESS;
  std::string log;  // The compiler's log, if the build failed or if `wants_log`.
};

Built compile(cl_context context, cl_device_id device, const std::string& options, const std::string& source, bool wants_log);
/// Compiles several texts in up to `threads` threads, but not in more than the machine has cores.
/// Calls `done` with the position of each text that was compiled, from several threads.
std::vector<Built> compile_all(cl_context context, cl_device_id device, const std::string& options,
                               const std::vector<std::string>& sources, size_t threads, bool wants_log,
                               const std::function<void(size_t)>& done = {});
// The number of threads in which a GPU's driver compiles at once.
inline constexpr size_t kCompilerThreads = 8;

}  // namespace ocl::runtime
