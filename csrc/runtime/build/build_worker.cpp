// csrc/runtime/build/build_worker.cpp: the loop of a build worker, which compiles program texts for its parent process and
// tries kernels.
#include "csrc/runtime/build/build_worker.h"

#include <chrono>
#include <thread>

#include "csrc/runtime/build/trial.h"
#include "csrc/runtime/device/device_list.h"
#include "csrc/runtime/opencl/compile.h"
#include "csrc/support/error.h"
#include "csrc/support/os.h"

namespace ocl::runtime {
namespace {

// A worker that gets no request for this long ends, because it holds a context of the device.
constexpr std::chrono::seconds kIdle{10};

struct Target {
  cl_device_id device = nullptr;
  ContextHandle context;
  std::string options, problem;
};

Target find_target(const os::Message& wanted) {
  Target target;
  if (wanted.size() < 5) {
    target.problem = "no device was named";
    return target;
  }
  target.options = wanted[0];
  std::vector<std::string> problems;
  std::string others;
  for (const ListedDevice& listed : find_devices(wanted[4], {wanted.begin() + 5, wanted.end()}, problems)) {
    if (!target.device && listed.platform_name == wanted[1] && listed.name == wanted[2] && listed.driver == wanted[3])
      target.device = listed.id;
    others += (others.empty() ? "" : ", ") + listed.label();
  }
  if (!target.device) {
    target.problem =
        "the worker finds no " + wanted[2] + " of " + wanted[1] + ", only " + (others.empty() ? "nothing" : others);
    for (const std::string& problem : problems) target.problem += "; " + problem;
    return target;
  }
  cl_int status = CL_SUCCESS;
  target.context = ContextHandle(clCreateContext(nullptr, 1, &target.device, nullptr, nullptr, &status));
  if (status != CL_SUCCESS) target.problem = std::string("no context: ") + status_name(status);
  return target;
}

os::Message build(const Target& target, const os::Message& request) {
  if (request.size() < 2) return {std::to_string(CL_INVALID_VALUE), "an incomplete request", ""};
  const Built built =
      compile(target.context.get(), target.device, target.options, request[1], request[0].find("log") != std::string::npos);
  std::string binary;
  if (built.status == CL_SUCCESS) binary = binary_of(built.handle.get());
  // A GPU's binary may be assembler text. Loading it here puts the machine code into the driver's own cache.
  if (!binary.empty() && request[0].find("load") != std::string::npos)
    load_binary(target.context.get(), target.device, target.options, binary);
  return {std::to_string(built.status), built.log, binary};
}

/// Runs a trial. The context may be unusable afterwards, see TrialResult.
TrialResult try_kernels(const Target& target, const os::Message& request) {
  try {
    return run_trial(target.context.get(), target.device, target.options, trial_of({request.begin() + 1, request.end()}));
  } catch (const Error& error) {
    return {error.what(), false};
  }
}

}  // namespace

int serve_builds(os::Channel& channel, const std::function<void(const std::string& text)>& before) {
  // Nobody reads the channel while the compiler runs, so a thread watches whether the parent still lives.
  std::thread([&channel] {
    channel.wait_for_end();
    os::end_process(0);
  }).detach();
  os::Message message;
  if (channel.receive(message, kIdle) != os::Received::kMessage) return 1;
  const Target target = find_target(message);
  if (!channel.send({target.problem})) return 1;
  if (!target.problem.empty()) return 1;
  while (channel.receive(message, kIdle) == os::Received::kMessage) {
    const bool tries = !message.empty() && message[0] == kTryRequest;
    if (before)
      for (size_t i = 1; i < message.size(); ++i) before(message[i]);
    if (!tries) {
      if (!channel.send(build(target, message))) return 1;
      continue;
    }
    const TrialResult result = try_kernels(target, message);
    if (!channel.send({result.fault, result.broken ? "broken" : ""})) return 1;
    if (result.broken) os::end_process(0);  // Without releasing anything.
  }
  return 0;
}

}  // namespace ocl::runtime
