// csrc/exec/late_memory.cpp: see late_memory.h.
#include "csrc/exec/late_memory.h"

#include <algorithm>
#include <utility>

namespace ocl::exec {
MemoryTimes memory_times(const Plan& plan) {
  const ir::Graph& graph = plan.schedule.graph;
  MemoryTimes times;
  std::vector<bool> given(graph.inputs.size());
  for (size_t i = 0; i < given.size(); ++i) given[i] = graph.buffers[graph.inputs[i]].donated;
  for (const BufferSource& source : plan.output_sources)
    if (source.kind == BufferSource::Kind::kInput) given[static_cast<size_t>(source.index)] = false;
  const bool calls = std::ranges::any_of(plan.steps, [](const Step& step) { return step.launch == ir::kNone; });
  bool writes_others = false;
  for (const int i : plan.written_inputs) {
    if (given[static_cast<size_t>(i)]) continue;
    const ir::Buffer& buffer = graph.buffers[graph.inputs[static_cast<size_t>(i)]];
    const bool is_word = buffer.dtype == ir::DType::kI32 && ir::product(buffer.sizes).is_const(1);
    times.words += is_word;
    writes_others |= !is_word;
  }
  times.gives_back = std::ranges::find(given, true) != given.end();
  times.possible = !plan.steps.empty() && !calls && !writes_others;
  if (!times.possible) return times;

  std::vector<int> first(plan.schedule.allocations.size(), 0), last(given.size(), 0);
  std::vector<bool> written(first.size(), false);
  for (size_t step = 0; step < plan.steps.size(); ++step)
    for (const BufferSource& source : plan.launches[static_cast<size_t>(plan.steps[step].launch)].buffers) {
      const auto index = static_cast<size_t>(source.index);
      if (source.kind == BufferSource::Kind::kInput) last[index] = static_cast<int>(step);
      if (source.kind != BufferSource::Kind::kOutput || written[index]) continue;
      written[index] = true;
      first[index] = static_cast<int>(step);
    }
  times.first_writes.resize(plan.steps.size());
  times.last_uses.resize(plan.steps.size());
  for (size_t i = 0; i < first.size(); ++i) times.first_writes[static_cast<size_t>(first[i])].push_back(static_cast<int>(i));
  for (size_t i = 0; i < last.size(); ++i)
    if (given[i]) times.last_uses[static_cast<size_t>(last[i])].push_back(static_cast<int>(i));
  return times;
}

LateArena late_arena(std::vector<schedule::Interval> intervals, size_t steps, int64_t alignment) {
  LateArena late;
  late.block_bytes.assign(intervals.size(), 0);
  late.begin_at.resize(steps);
  late.end_at.resize(steps);
  for (size_t i = 0; i < intervals.size(); ++i) {
    schedule::Interval& interval = intervals[i];
    if (interval.size_bytes < kLeastBlock) continue;
    late.block_bytes[i] = std::exchange(interval.size_bytes, 0);
    late.begin_at[static_cast<size_t>(interval.first)].push_back(static_cast<int>(i));
    late.end_at[static_cast<size_t>(interval.last)].push_back(static_cast<int>(i));
  }
  late.arena = schedule::plan_memory(intervals, alignment);
  return late;
}

}  // namespace ocl::exec
