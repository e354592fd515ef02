// csrc/runtime/build/trial.cpp: see trial.h.
#include "csrc/runtime/build/trial.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>

#include "csrc/runtime/opencl/compile.h"
#include "csrc/runtime/opencl/hidden_instructions.h"
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

/// Enqueues the packs of a launch, then the launch itself. Returns the buffers of its results, with guards around them; empty
/// if a launch fails.
std::vector<cl_mem> enqueue(Bench& bench, const TrialLaunch& launch) {
  const cl_program program = bench.programs.at(launch.program).handle.get();
  if (program == nullptr) return {};
  cl_int status = CL_SUCCESS;
  bench.kernels.emplace_back(clCreateKernel(program, kTrialKernel, &status));
  cl_kernel kernel = bench.kernels.back().get();
  if (status != CL_SUCCESS) return {};
  cl_uint slot = 0;
  bool set = true;
  const auto argument = [&](const auto& value) {
    set = set && clSetKernelArg(kernel, slot++, sizeof(value), &value) == CL_SUCCESS;
  };
  const auto pair = [&](cl_mem memory, cl_ulong offset) {
    argument(memory);
    argument(offset);
  };
  for (const TrialLaunch::Input& input : launch.inputs) {
    if (input.pack.empty()) {
      pair(buffer(bench, input.bytes.data(), input.bytes.size()), input.offset);
      continue;
    }
    const std::vector<cl_mem> packed = enqueue(bench, input.pack[0]);
    if (packed.empty()) return {};
    pair(packed[0], kTrialGuard);
  }
  for (const auto& value : launch.integers) std::visit(argument, value);
  std::vector<cl_mem> outputs;
  for (const size_t count : launch.results) {
    const std::vector<float> nothing(count + 2 * kTrialGuard, NAN);
    outputs.push_back(buffer(bench, nothing.data(), nothing.size() * sizeof(float)));
    pair(outputs.back(), kTrialGuard);
  }
  for (const auto& value : launch.last) std::visit(argument, value);
  const std::array<size_t, 3> local = {launch.local, 1, 1};
  const std::array<size_t, 3> global = {launch.groups[0] * launch.local, launch.groups[1], launch.groups[2]};
  set = set && clEnqueueNDRangeKernel(bench.queue.get(), kernel, 3, nullptr, global.data(), local.data(), 0, nullptr,
                                      nullptr) == CL_SUCCESS;
  return set ? outputs : std::vector<cl_mem>();
}

/// Reads a buffer of `count` floats. Returns false if it cannot, or if the device does not answer in time.
bool read(Bench& bench, cl_mem memory, std::vector<float>& floats) {
  cl_event raw = nullptr;
  if (clEnqueueReadBuffer(bench.queue.get(), memory, CL_FALSE, 0, floats.size() * sizeof(float), floats.data(), 0, nullptr,
                          &raw) != CL_SUCCESS)
    return false;
  const EventHandle event(raw);
  clFlush(bench.queue.get());
  bench.completion = wait_within(raw, kLongestLaunch);
  if (bench.completion == Completion::kDone) return true;
  // The driver may still write into this memory, so it is never freed.
  static auto* kept = new std::vector<std::vector<float>>;
  kept->push_back(std::move(floats));
  return false;
}

/// Returns the results of a launch, of all outputs. Empty if it cannot run, does not end in time, or writes to a guard.
std::vector<float> results_of(Bench& bench, const TrialLaunch& launch) {
  const std::vector<cl_mem> outputs = enqueue(bench, launch);
  std::vector<float> results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::vector<float> written(launch.results[i] + 2 * kTrialGuard, NAN);
    if (!read(bench, outputs[i], written)) return {};
    const auto untouched = [](float x) { return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(NAN); };
    const auto begin = written.begin() + kTrialGuard, end = written.end() - kTrialGuard;
    if (!std::all_of(written.begin(), begin, untouched) || !std::all_of(end, written.end(), untouched)) return {};
    results.insert(results.end(), begin, end);
  }
  return results;
}

/// Runs the steps and returns their results. Empty if one cannot run, or if they do not end in time.
std::vector<float> results_of_steps(Bench& bench, const TrialRun& run) {
  std::vector<cl_mem> memory;
  for (const std::string& bytes : run.memory) memory.push_back(buffer(bench, bytes.data(), bytes.size()));
  for (const TrialStep& step : run.steps) {
    const cl_program program = bench.programs.at(step.program).handle.get();
    cl_int status = CL_INVALID_PROGRAM;
    if (program != nullptr) bench.kernels.emplace_back(clCreateKernel(program, step.kernel.c_str(), &status));
    if (status != CL_SUCCESS) return {};
    cl_kernel kernel = bench.kernels.back().get();
    cl_uint slot = 0;
    bool set = true;
    const auto argument = [&](const auto& value) {
      set = set && clSetKernelArg(kernel, slot++, sizeof(value), &value) == CL_SUCCESS;
    };
    for (const TrialStep::Argument& given : step.arguments) {
      if (given.buffer >= 0) argument(memory.at(static_cast<size_t>(given.buffer)));
      if (given.wide)
        argument(cl_long{given.value});
      else
        argument(static_cast<cl_int>(given.value));
    }
    std::array<size_t, 3> global = step.groups;
    for (size_t d = 0; d < 3; ++d) global[d] *= step.local[d];
    if (!set || clEnqueueNDRangeKernel(bench.queue.get(), kernel, 3, nullptr, global.data(), step.local.data(), 0, nullptr,
                                       nullptr) != CL_SUCCESS)
      return {};
  }
  std::vector<float> results;
  for (const int32_t written : run.written) {
    std::vector<float> part(run.memory.at(static_cast<size_t>(written)).size() / sizeof(float));
    if (!read(bench, memory[static_cast<size_t>(written)], part)) return {};
    results.insert(results.end(), part.begin(), part.end());
  }
  return results;
}

/// The number of results of a run.
size_t count_of(const TrialRun& run) {
  size_t count = 0;
  for (const int32_t written : run.written) count += run.memory.at(static_cast<size_t>(written)).size() / sizeof(float);
  return run.steps.empty() ? std::accumulate(run.launch.results.begin(), run.launch.results.end(), size_t{0}) : count;
}

std::string digits(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", x);
  return text;
}

/// The first result that is wrong, as the end of a sentence. "" if all are right.
std::string wrong_result(const TrialRun& run, const std::vector<float>& results) {
  const size_t block = run.block > 0 ? run.block : run.exact.size();
  for (size_t i = 0; i < run.exact.size(); ++i) {
    double sum = 0;
    for (size_t part = 0; part < run.parts; ++part) {
      const float x = results[(i / block * run.parts + part) * block + i % block];
      sum += run.integers ? std::bit_cast<int32_t>(x) : static_cast<double>(x);
    }
    if (!(std::fabs(sum - run.exact[i]) <= run.tolerance * run.sizes[i]))
      return "number " + std::to_string(i) + " is " + digits(sum) + ", not " + digits(run.exact[i]);
  }
  return "";
}

std::string fault_of(Bench& bench, const TrialRun& run) {
  const size_t count = count_of(run);
  if (run.exact.size() * run.parts != count || run.sizes.size() != run.exact.size())
    fail(ErrorKind::kInternal, "a trial expects other results than its launch writes");
  const std::vector<float> results = run.steps.empty() ? results_of(bench, run.launch) : results_of_steps(bench, run);
  const std::string name = "it, as " + run.name + ",";
  if (results.empty()) return name + (bench.completion == Completion::kPending ? " does not end" : " does not run");
  const std::string wrong = wrong_result(run, results);
  return wrong.empty() ? "" : name + " gives wrong results: " + wrong;
}

void pass(Archive& archive, TrialLaunch& launch) {
  archive(launch.program, launch.groups, launch.local, launch.results);
  archive.list(launch.inputs, [&](TrialLaunch::Input& input) {
    archive(input.bytes, input.offset);
    archive.list(input.pack, [&](TrialLaunch& pack) { pass(archive, pack); });
  });
  for (auto* integers : {&launch.integers, &launch.last})
    archive.list(*integers, [&](TrialLaunch::Integer& integer) {
      bool wide = integer.index() == 1;
      int64_t number = std::visit([](auto value) { return static_cast<int64_t>(value); }, integer);
      archive(wide, number);
      integer = wide ? TrialLaunch::Integer(number) : TrialLaunch::Integer(static_cast<int32_t>(number));
    });
}

void pass(Archive& archive, TrialStep& step) {
  archive(step.program, step.kernel, step.groups, step.local);
  archive.list(step.arguments, [&](TrialStep::Argument& given) { archive(given.buffer, given.wide, given.value); });
}

void pass(Archive& archive, Trial& trial) {
  archive(trial.programs);
  archive.list(trial.runs, [&](TrialRun& run) {
    std::vector<double> tolerance = {run.tolerance};
    archive(run.name, tolerance, run.exact, run.sizes, run.parts, run.block, run.integers);
    if (tolerance.size() != 1) archive.damaged();
    run.tolerance = tolerance[0];
    pass(archive, run.launch);
    archive.list(run.steps, [&](TrialStep& step) { pass(archive, step); });
    archive(run.memory, run.written);
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
