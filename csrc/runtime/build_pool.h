// csrc/runtime/build_pool.h: worker processes that compile several kernels at once. A driver serialises the
// compilations of one process. A compiler that crashes or hangs in a worker costs one kernel, not this process.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "csrc/runtime/cl.h"

namespace ocl::runtime {

class Device;

struct BuildPoolSettings {
  // -1: as many as cores and memory allow. 0: compile in this process.
  int most_workers = -1;
  std::chrono::milliseconds longest{300'000};  // Time limit for one program.
  std::string worker;                          // Path of the worker program. "": next to the library that contains this code.
  bool operator==(const BuildPoolSettings&) const = default;
};
void set_build_pool(const BuildPoolSettings& settings);
BuildPoolSettings build_pool_settings();

/// Returns the number of workers to use for this many kernels. 0: compile in this process.
size_t workers_for(const Device& device, size_t kernels);

/// The result of compiling one program text.
struct WorkerResult {
  // True if a worker answered; then `status`, `log` and `binary` are valid. Otherwise `death` says how the compiler
  // ended, or is "" if no worker could be started.
  bool answered = false;
  cl_int status = CL_SUCCESS;
  std::string log, binary;
  std::string death;  // How the compiler's process ended at every try, such as "signal 11".
};
/// True if the program text caused the end of the process; false if the system killed it because memory ran out.
bool is_caused_by_text(const std::string& death);
/// Compiles the texts, the longest first. If the system kills the compiler's process, a text is tried up to `tries` times. A
/// text that caused the process's end is not tried again. Calls `done` with the position of each text that was built, from
/// several threads. Thread-safe.
std::vector<WorkerResult> build_in_workers(const Device& device, const std::vector<std::string>& sources, size_t workers,
                                           int tries, bool wants_log, const std::function<void(size_t)>& done = {});

}  // namespace ocl::runtime
