// csrc/runtime/trial.cpp: see trial.h.
#include "csrc/runtime/trial.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "csrc/runtime/compile.h"
#include "csrc/runtime/hidden_instructions.h"
#include "csrc/support/archive.h"
#include "csrc/support/error.h"

namespace ocl::runtime {
namespace {

/// The OpenCL objects of one trial. They are leaked if the device does not answer, because releasing them would wait for it,
/// and if a kernel failed, because a driver may then crash while it releases them.
struct Bench {
  cl_context context = nullptr;
  QueueHandle queue;
  std::vector<Built> programs;
  std::vector<KernelHandle> kernels;
  std::vector<MemHandle> memory;
  Completion completion = Completion::kDone;  // How the last launch ended.
};

cl_mem buffer(Bench& bench, const void* bytes, size_t count) {
  cl_int status = CL_SUCCESS;
  bench.memory.emplace_back(
      clCreateBuffer(bench.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, count, const_cast<void*>(bytes), &status));
  return bench.memory.back().get();
}

/// Enqueues the packs of a launch, then the launch itself. Returns the buffer of its results, with guards around them; nullptr
/// if a launch fails.
cl_mem enqueue(Bench& bench, const TrialLaunch& launch) {
  const cl_program program = bench.programs.at(launch.program).handle.get();
  if (program == nullptr) return nullptr;
  cl_int status = CL_SUCCESS;
  bench.kernels.emplace_back(clCreateKernel(program, kTrialKernel, &status));
  cl_kernel kernel = bench.kernels.back().get();
  if (status != CL_SUCCESS) return nullptr;
  cl_uint slot = 0;
  bool set = true;
  const auto argument = [&](const auto& value) {
    set = set && clSetKernelArg(kernel, slot++, sizeof(value), &value) == CL_SUCCESS;
  };
  const auto pair = [&](cl_mem memory, cl_ulong offset) {
    argument(memory);
    argument(offset);
  };
  const auto inputs = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i)
      pair(buffer(bench, launch.inputs[i].data(), launch.inputs[i].size()), static_cast<cl_ulong>(launch.offset));
  };
  const size_t packs_at = std::min(launch.packs_at, launch.inputs.size());
  inputs(0, packs_at);
  for (const TrialLaunch& pack : launch.packs) {
    const cl_mem packed = enqueue(bench, pack);
    if (packed == nullptr) return nullptr;
    pair(packed, kTrialGuard);
  }
  inputs(packs_at, launch.inputs.size());
  for (const auto& value : launch.integers) std::visit(argument, value);
  const std::vector<float> nothing(launch.results + 2 * kTrialGuard, NAN);
  cl_mem out = buffer(bench, nothing.data(), nothing.size() * sizeof(float));
  pair(out, kTrialGuard);
  const std::array<size_t, 3> local = {launch.local, 1, 1};
  const std::array<size_t, 3> global = {launch.groups[0] * launch.local, launch.groups[1], launch.groups[2]};
  set = set && clEnqueueNDRangeKernel(bench.queue.get(), kernel, 3, nullptr, global.data(), local.data(), 0, nullptr,
                                      nullptr) == CL_SUCCESS;
  return set ? out : nullptr;
}

/// Returns the results of a launch, with guards. Empty if it cannot run, does not end in time, or writes to a guard.
std::vector<float> results_of(Bench& bench, const TrialLaunch& launch) {
  std::vector<float> results(launch.results + 2 * kTrialGuard, NAN);
  const cl_mem out = enqueue(bench, launch);
  cl_event raw = nullptr;
  if (out == nullptr || clEnqueueReadBuffer(bench.queue.get(), out, CL_FALSE, 0, results.size() * sizeof(float), results.data(),
                                            0, nullptr, &raw) != CL_SUCCESS)
    return {};
  const EventHandle event(raw);
  clFlush(bench.queue.get());
  bench.completion = wait_within(raw, kLongestLaunch);
  if (bench.completion != Completion::kDone) {
    // The driver may still write into this memory, so it is never freed.
    static auto* kept = new std::vector<std::vector<float>>;
    kept->push_back(std::move(results));
    return {};
  }
  const auto untouched = [](float x) { return std::isnan(x); };
  if (!std::all_of(results.begin(), results.begin() + kTrialGuard, untouched) ||
      !std::all_of(results.end() - kTrialGuard, results.end(), untouched))
    return {};
  return results;
}

bool is_right(const TrialRun& run, const std::vector<float>& results) {
  for (size_t i = 0; i < run.exact.size(); ++i)
    if (!(std::fabs(results[kTrialGuard + i] - run.exact[i]) <= run.tolerance * run.sizes[i])) return false;
  return true;
}

std::string fault_of(Bench& bench, const TrialRun& run) {
  if (run.exact.size() != run.launch.results || run.sizes.size() != run.exact.size())
    fail(ErrorKind::kInternal, "a trial expects other results than its launch writes");
  const std::vector<float> results = results_of(bench, run.launch);
  const std::string name = "it, as " + run.name + ",";
  if (results.empty()) return name + (bench.completion == Completion::kPending ? " does not end" : " does not run");
  return is_right(run, results) ? "" : name + " gives wrong results";
}

void pass(Archive& archive, TrialLaunch& launch) {
  archive(launch.program, launch.packs_at, launch.groups, launch.local, launch.results, launch.offset, launch.inputs);
  archive.list(launch.packs, [&](TrialLaunch& pack) { pass(archive, pack); });
  archive.list(launch.integers, [&](TrialLaunch::Integer& integer) {
    bool wide = integer.index() == 1;
    int64_t number = std::visit([](auto value) { return static_cast<int64_t>(value); }, integer);
    archive(wide, number);
    integer = wide ? TrialLaunch::Integer(number) : TrialLaunch::Integer(static_cast<int32_t>(number));
  });
}

void pass(Archive& archive, Trial& trial) {
  archive(trial.programs);
  archive.list(trial.runs, [&](TrialRun& run) {
    std::vector<double> tolerance = {run.tolerance};
    archive(run.name, tolerance, run.exact, run.sizes);
    if (tolerance.size() != 1) archive.damaged();
    run.tolerance = tolerance[0];
    pass(archive, run.launch);
  });
}

}  // namespace

TrialResult run_trial(cl_context context, cl_device_id device, const std::string& options, const Trial& trial) {
  auto bench = std::make_unique<Bench>();
  bench->context = context;
  cl_int status = CL_SUCCESS;
  bench->queue = QueueHandle(clCreateCommandQueue(context, device, 0, &status));
  if (status != CL_SUCCESS) return {std::string("no queue: ") + status_name(status), false};
  for (const std::string& text : trial.programs) bench->programs.push_back(compile(context, device, options, text, false));
  for (const Built& program : bench->programs)
    if (program.status != CL_SUCCESS)
      return {(trial.runs.empty() ? "it" : "it, as " + trial.runs[0].name + ",") + " does not build", false};
  TrialResult result;
  for (size_t i = 0; i < trial.runs.size() && result.fault.empty(); ++i) result.fault = fault_of(*bench, trial.runs[i]);
  result.broken = bench->completion != Completion::kDone;
  if (result.broken) static_cast<void>(bench.release());
  return result;
}

os::Message message_of(const Trial& trial) {
  Archive archive;
  pass(archive, const_cast<Trial&>(trial));  // An archive that writes changes nothing.
  return {archive.text()};
}

Trial trial_of(const os::Message& message) {
  Archive archive(message.empty() ? "" : message[0], "a trial");
  Trial trial;
  pass(archive, trial);
  if (message.size() != 1 || !archive.at_end()) fail(ErrorKind::kInternal, "a trial has more than can be read");
  return trial;
}

}  // namespace ocl::runtime
