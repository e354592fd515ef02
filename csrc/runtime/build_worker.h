// csrc/runtime/build_worker.h: what the process that compiles kernels for another one does (csrc/worker/main.cpp).
// Messages, each a list of texts:
//   first, to the worker: build options, platform name, device name, driver, then the paths of runtimes that are not in the
//     system's list; its answer: "" or why it has no such device
//   then, again and again, to the worker: what is wanted beside the binary ("log": the compiler's words even if all is well,
//     "load": the binary loaded once, so that the driver's own cache has its machine code), a program text
//     its answer: the status of clBuildProgram, the log, the binary
#pragma once

#include <functional>
#include <string>

#include "csrc/support/child.h"

namespace ocl::runtime {

/// Answers until the other side closes the channel or is silent for a while. The exit status of the process. `before` sees each
/// text first: tests make a compiler that fails of it.
int serve_builds(os::Channel& channel, const std::function<void(const std::string& text)>& before = {});

}  // namespace ocl::runtime
