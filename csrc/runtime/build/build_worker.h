// csrc/runtime/build/build_worker.h: the loop of a process that compiles kernels for another process (csrc/worker/main.cpp).
// Each message is a list of texts:
//   first request: build options, platform name, device name, driver, then paths of runtimes that are not in the system's list
//     answer: "" or why there is no such device
//   every later request: flags, then a program text. Flag "log": return the compiler's log even without an error. Flag "load":
//     load the binary once, so that the driver's own cache has its machine code
//     answer: status of clBuildProgram, log, binary
//   or "try", then a trial (trial.h)
//     answer: what is wrong, or ""; "broken" if the worker then ends, because a kernel failed or did not end
#pragma once

#include <functional>
#include <string>

#include "csrc/support/child.h"

namespace ocl::runtime {

inline constexpr char kTryRequest[] = "try";

/// Answers requests until the other side closes the channel or is silent for some seconds. Returns the exit status of
/// the process. `before` is called with each program text; tests use it to imitate a failing compiler.
int serve_builds(os::Channel& channel, const std::function<void(const std::string& text)>& before = {});

}  // namespace ocl::runtime
