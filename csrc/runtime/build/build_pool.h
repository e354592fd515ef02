// csrc/runtime/build/build_pool.h: worker processes that compile several kernels at once, and try kernels. A driver serialises
// the compilations of one process. A compiler or a kernel that crashes or hangs in a worker costs one kernel, not this process.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "csrc/runtime/build/trial.h"
#include "csrc/runtime/opencl/cl.h"

namespace ocl::runtime {

class Device;

struct BuildPoolSettings {
  // -1: as many as cores and memory allow. 0: compile in this process.
  int most_workers = -1;
  std::chrono::milliseconds longest{300'000};  // Time limit for one program.
  std::string worker{};                        // Path of the worker program. "": next to the library that contains this code.
  std::string places{};                        // File of the places that processes share (build_places.h). "": none are shared.
  std::chrono::milliseconds place_timeout{60'000};  // How long a process waits for a shared place.
  bool operator==(const BuildPoolSettings&) const = default;
};
void set_build_pool(const BuildPoolSettings& settings);
BuildPoolSettings build_pool_settings();

/// Returns the number of workers to use for this many kernels. 0: compile in this process.
size_t workers_for(const Device& device, size_t kernels);

/// Returns the largest number of workers that a device has at the same time. 0: there are no workers.
size_t most_workers(const Device& device);

/// Starts up to `count` workers in other threads, for kernels that come soon. Counts those that are idle.
void start_workers(const Device& device, size_t count);

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
/// several threads. Thread-safe. Calls that overlap share most_workers(); a call waits for a worker that another one uses. Only
/// a call outside of run_in_background that has work for one worker does not wait for this process: it gets one more.
std::vector<WorkerResult> build_in_workers(const Device& device, const std::vector<std::string>& sources, size_t workers,
                                           int tries, bool wants_log, const std::function<void(size_t)>& done = {});

/// How a trial ended.
struct TrialVerdict {
  // False if no worker could be started, or if the system killed it twice because memory ran out. Then nothing is known.
  bool known = false;
  std::string fault;  // As in TrialResult. A process that ended is a fault too.
  std::string death;  // Why nothing is known: "signal 9"; "" if no worker could be started.
};
/// Runs `count` trials in workers, each made by `make` with its number when it begins, in several threads. Calls `done` with
/// the number of each, from several threads.
std::vector<TrialVerdict> try_in_workers(const Device& device, size_t count, const std::function<Trial(size_t)>& make,
                                         const std::function<void(size_t)>& done = {});

}  // namespace ocl::runtime
