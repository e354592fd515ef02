// csrc/checks/quick_check.h: finds out whether the driver of a device that nobody has tried computes what kernels rely on.
#pragma once

#include <future>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/codegen/kernel_source.h"
#include "csrc/kernels/caps.h"
#include "csrc/runtime/build/trial.h"
#include "csrc/runtime/device/device.h"
#include "csrc/runtime/opencl/kernel_text.h"

namespace ocl::checks {

/// The quick check of a device. It runs once in a process, in build workers, beside the compilation of the first plan, and for
/// hand-written kernels beside the first plan that has them. `store` keeps the verdicts, under keys with the driver's version.
/// Devices whose runtime was tried (runtime/opencl/wrong_runtimes.h) have none.
class QuickCheck {
 public:
  /// Starts what has no verdict yet. `kinds`: those of the plan's hand-written kernels.
  QuickCheck(runtime::Device& device, const runtime::BinaryStore& store, const std::set<std::string>& kinds);
  /// Waits for the verdict. Returns false if it came after this object was made and names faults: avoid_faults() then changes
  /// caps. Warns once. UnsupportedError if the driver gets plain sums wrong.
  bool finish();

 private:
  int device_;
  std::vector<std::string> parts_;
  std::vector<std::shared_future<void>> running_;  // One for each part.
  bool known_;
};

/// Returns the names of what the driver gets wrong, in one text, "" if that is nothing or if the device has no check. Reads the
/// verdict of an earlier process from `store`. nullopt: there is none yet, so a plan that is kept in `store` was not checked.
std::optional<std::string> known_verdict(const runtime::Device& device, const runtime::BinaryStore& store);
/// Returns what the last check of any process with this store found wrong of a device's driver, in words, for the order of
/// devices. "" if that is nothing, or if there was no check.
std::string kept_faults(const runtime::BinaryStore& store, const std::string& platform, const std::string& device,
                        const std::string& driver);
/// Returns the caps of kernels that do not use what the driver gets wrong, as far as caps decide that.
Caps avoid_faults(const runtime::Device& device, Caps caps);
/// Returns what a kernel uses, or is, that the driver gets wrong: "exp", "scans"; "" if there is nothing.
std::string faulty_use(const runtime::Device& device, const codegen::KernelSource& source);
/// Runs the whole check now. Returns (name, fault) of each; the fault is "" if the driver is right.
std::vector<std::pair<std::string, std::string>> probe_driver(const runtime::Device& device);
/// Runs a trial in a context of its own in this process. If a kernel failed or did not end, the context is never released.
std::string try_here(const runtime::Device& device, const runtime::Trial& trial);

}  // namespace ocl::checks
