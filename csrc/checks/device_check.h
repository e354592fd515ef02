// csrc/checks/device_check.h: checks whether tensor core kernels give right results on a device. A kernel that a plan launches
// for the first time is run on small random operands, with the plan's tiles, and compared with sums in double precision.
#pragma once

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "csrc/kernels/caps.h"
#include "csrc/runtime/build/program.h"
#include "csrc/runtime/device/device.h"
#include "csrc/schedule/families/case.h"
#include "csrc/schedule/schedule.h"

namespace ocl::checks {

/// Returns `caps` without the kernels that failed a check in this process, and without warp kernels whose work a warpgroup
/// kernel does.
Caps unfailed_kernels(const runtime::Device& device, Caps caps);

/// Returns how many kernels, each with a type and a device, have failed a check in this process.
size_t fault_count();

/// The checks that a schedule needs. They run in build workers, and in a thread of this process only where there are none. A
/// verdict is kept in the process and in `store`. Schedules that need the same check at the same time share it.
class LaunchChecks {
 public:
  /// Starts the checks of the tensor core kernels in the schedule that have no verdict yet, all at once.
  LaunchChecks(runtime::Device& device, const runtime::BinaryStore& store, const schedule::Schedule& schedule);
  LaunchChecks(const LaunchChecks&) = delete;
  LaunchChecks& operator=(const LaunchChecks&) = delete;
  /// Waits for the verdicts. Returns false if a kernel does not build, does not end or gives wrong results. unfailed_kernels()
  /// leaves it out then. Logs one warning per kernel and type.
  bool passed();

 private:
  struct Work;
  std::shared_ptr<Work> work_;  // The thread has it, too.
  std::future<void> running_;
};

/// A tensor core kernel with one of its types.
struct CheckedKernel {
  KernelId id;
  KernelType type;
};

/// Returns the kernels and types that have a check and whose instructions the device has. Empty without tensor cores.
std::vector<CheckedKernel> kernels_to_check(const runtime::Device& device);

/// Checks one kernel with a sample of its tiles. Returns what is wrong with it, or "".
std::string fault_of_kernel(runtime::Device& device, const runtime::BinaryStore& store, const CheckedKernel& kernel);

/// Runs a case in this process, or in a build worker. Returns what is wrong, or "".
std::string fault_of_case(const runtime::Device& device, schedule::CheckCase check, bool in_worker);

}  // namespace ocl::checks
