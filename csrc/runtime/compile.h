// csrc/runtime/compile.h: program texts through a driver's compiler, in this process.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "csrc/runtime/cl.h"

namespace ocl::runtime {

/// A program with what went wrong while it was built, if anything.
struct Built {
  ProgramHandle handle;
  cl_int status = CL_SUCCESS;
  std::string log;  // the compiler's, if it failed or `wants_log`
};

Built compile(cl_context context, cl_device_id device, const std::string& options, const std::string& source, bool wants_log);
/// The same for several texts, in at most `threads` threads and no more than the machine has cores. `done` is called with the
/// position of each text that was compiled, by several threads.
std::vector<Built> compile_all(cl_context context, cl_device_id device, const std::string& options,
                               const std::vector<std::string>& sources, size_t threads, bool wants_log,
                               const std::function<void(size_t)>& done = {});
inline constexpr size_t kCompilerThreads = 8;  // threads of a process that a GPU's driver lets compile at once
/// From a binary of the same device and driver; a null handle where the driver refuses it.
ProgramHandle load_binary(cl_context context, cl_device_id device, const std::string& options, const std::string& binary);
/// "" where the driver gives none.
std::string binary_of(cl_program program);

}  // namespace ocl::runtime
