// csrc/runtime/build_pool.h: processes that compile kernels, several at once: drivers serialise the threads of one process, and
// a compiler that crashes or hangs there costs its kernel and not this process.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "csrc/runtime/cl.h"

namespace ocl::runtime {

class Device;

struct BuildPoolSettings {
  int most_workers = -1;                       // -1: as many as cores and memory allow; 0: kernels are compiled in this process
  std::chrono::milliseconds longest{300'000};  // time limit for one program
  std::string worker;                          // path of the program; "": beside the library that this code is in
  bool operator==(const BuildPoolSettings&) const = default;
};
void set_build_pool(const BuildPoolSettings& settings);
BuildPoolSettings build_pool_settings();

/// How many workers are worth their start for so many kernels; 0: compile them here.
size_t workers_for(const Device& device, size_t kernels);

/// What became of one program text.
struct WorkerResult {
  bool answered =
      false;  // by a worker: status, log and binary hold. Else by none, for `death` or because none could be started
  cl_int status = CL_SUCCESS;
  std::string log, binary;
  std::string death;  // how the compiler ended, at every try: "signal 11"
};
/// Whether the text caused the death. If not, the system killed the process because memory ran out.
bool is_of_the_text(const std::string& death);
/// Compiles the texts, the longest first; each is tried `tries` times where the compiler dies of it. `done` is called with the
/// position of each text that is built, by several threads. Thread-safe.
std::vector<WorkerResult> build_in_workers(const Device& device, const std::vector<std::string>& sources, size_t workers,
                                           int tries, bool wants_log, const std::function<void(size_t)>& done = {});

}  // namespace ocl::runtime
