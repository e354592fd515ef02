// csrc/runtime/build/trial.h: launches of kernels on given operands, whose results are compared with expected ones. A trial
// needs no more than OpenCL, so a build worker can run it, where a fault harms nothing else.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "csrc/runtime/opencl/cl.h"
#include "csrc/support/child.h"

namespace ocl::runtime {

/// One launch of the kernel kTrialKernel. Its arguments are: for each input a buffer and an offset in elements, then the
/// integers, then for each output a buffer and the offset of its first element, then the last integers.
struct TrialLaunch {
  using Integer = std::variant<int32_t, int64_t>;
  struct Input {
    std::string bytes;  // From element 0 on.
    uint64_t offset = 0;
    std::vector<TrialLaunch> pack;  // Not empty: the launch that runs first and whose results are the input.
  };
  size_t program = 0;  // Position in Trial::programs.
  std::vector<Input> inputs;
  std::vector<Integer> integers, last;
  std::array<size_t, 3> groups{1, 1, 1};
  size_t local = 1;
  std::vector<size_t> results;  // The number of floats that the launch writes to each output.
};
inline constexpr char kTrialKernel[] = "checked_kernel";

/// One launch of those of a plan, whose buffers are TrialRun::memory.
struct TrialStep {
  struct Argument {
    int32_t buffer = -1;  // Not negative: a pair of arguments, the buffer and `value`, an offset in elements.
    bool wide = true;     // `value` is a long. Otherwise it is an int.
    int64_t value = 0;
  };
  size_t program = 0;
  std::string kernel;
  std::vector<Argument> arguments;  // In the kernel's order.
  std::array<size_t, 3> groups{1, 1, 1}, local{1, 1, 1};
};

/// A launch, or the launches of a plan, and the expected results. A result may differ from `exact` by `tolerance` times its
/// size. `parts` parts of each result are stored, for each `block` results one behind the other.
struct TrialRun {
  std::string name;  // For messages.
  TrialLaunch launch;
  std::vector<double> exact, sizes;
  double tolerance = 0;
  size_t parts = 1, block = 0;        // block 0: all results are one.
  bool integers = false;              // The results are bits, as numbers of 32 bits.
  std::vector<TrialStep> steps{};     // Not empty: these are launched, in their order, and not `launch`.
  std::vector<std::string> memory{};  // The first bytes of each buffer of the steps.
  std::vector<int32_t> written{};     // The buffers with the results of the steps, floats.
};

struct Trial {
  std::vector<std::string> programs;  // Texts.
  std::vector<TrialRun> runs;
};

struct TrialResult {
  std::string fault;  // What is wrong: "it, as 128x64 bf16, gives wrong results". "": all results are right.
  // True if a kernel failed or did not end in time. Then the context and its objects must not be used or released any more.
  bool broken = false;
};

/// Builds the programs and runs all launches in the context, in a queue of their own, until something is wrong.
TrialResult run_trial(cl_context context, cl_device_id device, const std::string& options, const Trial& trial);
/// The number of floats in front of the results, and behind them, that a kernel must not write.
inline constexpr size_t kTrialGuard = 64;
/// The longest time of a launch. Other processes may use the device and all cores at the same time.
inline constexpr std::chrono::seconds kLongestLaunch{10};

/// The trial as a request to a build worker. trial_of throws kInternal if the message is damaged.
os::Message message_of(const Trial& trial);
Trial trial_of(const os::Message& message);

}  // namespace ocl::runtime
