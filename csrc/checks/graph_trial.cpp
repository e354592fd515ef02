// csrc/checks/graph_trial.cpp: makes a trial of a graph: its launches, memory for its buffers, and numbers for its inputs.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "csrc/checks/graph_cases.h"
#include "csrc/codegen/generate.h"
#include "csrc/ir/parse.h"
#include "csrc/schedule/pipeline.h"
#include "csrc/support/error.h"

namespace ocl::checks {
namespace {

constexpr double kTolerance = 4e-6;  // Of the largest result: sums of 3,000 floats, in any order.

size_t bytes_of(const ir::Buffer& buffer) {
  int64_t last = 0;
  for (size_t d = 0; d < buffer.sizes.size(); ++d)
    last += (buffer.sizes[d].constant() - 1) * (buffer.strides ? (*buffer.strides)[d].constant() : 0);
  return static_cast<size_t>((last + 1) * ir::size_bytes(buffer.dtype));
}

/// Returns numbers in [-1.6, 1.6] that fp32 holds, or indices below 50.
Numbers numbers_of(const ir::Buffer& buffer, size_t which) {
  Numbers numbers(bytes_of(buffer) / static_cast<size_t>(ir::size_bytes(buffer.dtype)));
  const bool floats = buffer.dtype == ir::DType::kF32;
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = floats ? (static_cast<double>((i * 7919 + which * 101) % 401) - 200) / 128 : static_cast<double>(i * 37 % 50);
  return numbers;
}

std::string stored(const Numbers& numbers, ir::DType type) {
  std::string bytes;
  const auto append = [&](const auto value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
  for (const double number : numbers)
    if (type == ir::DType::kF32)
      append(static_cast<float>(number));
    else
      append(static_cast<int64_t>(number));
  return bytes;
}

ir::BufferId owner_of(const schedule::Schedule& schedule, ir::BufferId buffer) {
  while (schedule.placements[buffer].kind == schedule::Placement::Kind::kAlias) buffer = schedule.placements[buffer].index;
  return buffer;
}

/// Adds the launch of a group. Its scratch memory is behind that of the graph's buffers.
void add_step(runtime::Trial& trial, const schedule::Schedule& schedule, const schedule::Group& group, const Caps& caps) {
  const codegen::KernelSource source = codegen::generate(schedule, group, caps);
  runtime::TrialRun& run = trial.runs[0];
  std::map<int, runtime::TrialStep::Argument> arguments;  // By the kernel's argument number.
  for (const codegen::BufferArg& arg : source.buffers)
    arguments[arg.slot] = {owner_of(schedule, arg.buffer), true, arg.offset.constant()};
  for (const codegen::IntArg& arg : source.ints) arguments[arg.slot] = {-1, arg.wide, arg.value.constant()};
  if (source.scratch_elements > 0) {
    arguments[source.scratch_slot] = {static_cast<int32_t>(run.memory.size()), true, 0};
    run.memory.emplace_back(static_cast<size_t>(source.scratch_elements) * 4, '\xff');
  }
  runtime::TrialStep& step = run.steps.emplace_back();
  step.program = trial.programs.size();
  step.kernel = source.name;
  for (const auto& [slot, argument] : arguments) step.arguments.push_back(argument);
  step.local = source.local;
  for (size_t d = 0; d < 3; ++d) step.groups[d] = static_cast<size_t>(source.groups[d].constant());
  trial.programs.push_back(source.text);
}

}  // namespace

std::string kind_of(const std::string& kind, const std::string& name) { return name.starts_with("scan_") ? "scan" : kind; }

runtime::Trial trial_of(const GraphCase& each, const Caps& caps) {
  const schedule::Schedule schedule = schedule::make_schedule(ir::parse_graph(each.graph), caps, {});
  runtime::Trial trial;
  runtime::TrialRun& run = trial.runs.emplace_back();
  run.name = each.name;
  for (const ir::Buffer& buffer : schedule.graph.buffers) run.memory.emplace_back(bytes_of(buffer), '\xff');  // Floats are NaN.
  std::vector<Numbers> inputs;
  for (const ir::BufferId input : schedule.graph.inputs) {
    inputs.push_back(numbers_of(schedule.graph.buffers[input], inputs.size()));
    run.memory[static_cast<size_t>(input)] = stored(inputs.back(), schedule.graph.buffers[input].dtype);
  }
  for (const schedule::Group& group : schedule.groups) add_step(trial, schedule, group, caps);
  for (const ir::Output& output : schedule.graph.outputs)
    run.written.push_back(static_cast<int32_t>(owner_of(schedule, output.buffer)));
  run.exact = each.exact(inputs);
  const double largest = std::fabs(*std::ranges::max_element(run.exact, {}, [](double x) { return std::fabs(x); }));
  run.sizes.assign(run.exact.size(), largest);
  run.tolerance = kTolerance;
  return trial;
}

}  // namespace ocl::checks
