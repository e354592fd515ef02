// csrc/exec/kept_steps.cpp: see kept_steps.h.
#include "csrc/exec/kept_steps.h"

#include <algorithm>
#include <map>
#include <set>

namespace ocl::exec {
namespace {

constexpr int64_t kAlignment = 256;  // Alignment of kept results in bytes, as in the arena.
// The most bytes that a step may keep for a byte of parameters. A float32 weight that is packed as parts for matrix engines
// takes two, and weights of 4 or 8 bits take more if they are kept unpacked.
constexpr int64_t kMostGrowth = 3;
constexpr int64_t kAlwaysKept = 1 << 16;  // Bytes of results that may always be kept.

/// What a step writes: inputs of the graph, intervals of the memory plan, outputs.
struct Writes {
  std::set<int> inputs, intervals;
  bool outputs = false;
};

Writes writes_of(const Plan& plan, const schedule::Group& group) {
  Writes result;
  for (const ir::NodeId node : group.nodes())
    for (const ir::BufferId buffer : ir::writes(plan.schedule.graph.nodes[node])) {
      if (plan.schedule.placements[buffer].kind == schedule::Placement::Kind::kNowhere) continue;
      const BufferSource source = source_of(plan, buffer);
      if (source.kind == BufferSource::Kind::kInput)
        result.inputs.insert(source.index);
      else if (source.kind == BufferSource::Kind::kArena)
        result.intervals.insert(source.index);
      else
        result.outputs = true;
    }
  return result;
}

/// True if a call's sizes are in the launch: as numbers of the kernel, offsets of buffers or counts of work-groups.
bool depends_on_sizes(const codegen::KernelSource& source) {
  const auto varies = [](const ir::IndexExpr& e) { return !e.is_const(); };
  return std::any_of(source.ints.begin(), source.ints.end(), [&](const auto& number) { return varies(number.value); }) ||
         std::any_of(source.buffers.begin(), source.buffers.end(), [&](const auto& arg) { return varies(arg.offset); }) ||
         std::any_of(source.groups.begin(), source.groups.end(), varies);
}

}  // namespace

void mark_kept(Plan& plan) {
  const ir::Graph& graph = plan.schedule.graph;
  std::vector<Writes> writes;
  std::set<int> written_inputs;
  std::map<int, std::set<size_t>> writers;  // Interval -> the steps that write it.
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    writes.push_back(writes_of(plan, plan.schedule.groups[i]));
    written_inputs.insert(writes[i].inputs.begin(), writes[i].inputs.end());
    for (const int interval : writes[i].intervals) writers[interval].insert(i);
  }
  plan.written_inputs.assign(written_inputs.begin(), written_inputs.end());
  if (plan.most_kept_bytes == 0) return;

  std::set<size_t> kept;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const int launch = plan.steps[i].launch;
    if (launch == ir::kNone || writes[i].outputs || !writes[i].inputs.empty()) continue;
    if (!depends_on_sizes(plan.launches[launch].source)) kept.insert(i);
  }
  const auto parameter = [&](int index) {
    return graph.buffers[graph.inputs[static_cast<size_t>(index)]].is_parameter && !written_inputs.count(index);
  };
  // Returns whether a step depends only on parameters, assuming that all steps in `kept` do, and keeps little for them.
  const auto stays = [&](size_t step) {
    bool reads_parameters = false;
    int64_t read = 0, written = 0;
    for (const BufferSource& source : plan.launches[plan.steps[step].launch].buffers) {
      if (source.kind == BufferSource::Kind::kInput) {
        if (!parameter(source.index)) return false;
        reads_parameters = true;
        const ir::Buffer& buffer = graph.buffers[graph.inputs[static_cast<size_t>(source.index)]];
        const ir::IndexExpr elements = ir::product(buffer.sizes);
        if (!elements.is_const()) return false;
        read += elements.constant() * ir::size_bytes(buffer.dtype);
      } else if (source.kind == BufferSource::Kind::kArena) {
        if (!plan.interval_bytes[source.index].is_const()) return false;
        for (const size_t writer : writers[source.index])
          if (!kept.count(writer)) return false;
        const bool writes = writers[source.index].count(step) > 0;
        (writes ? written : read) += plan.interval_bytes[source.index].constant();
        reads_parameters |= !writes;  // What a kept step has made of them, such as a weight converted to bf16.
      } else if (source.kind == BufferSource::Kind::kOutput || !plan.interval_bytes[source.index].is_const()) {
        return false;
      }
    }
    return reads_parameters && written <= std::max(kMostGrowth * read, kAlwaysKept);
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (auto it = kept.begin(); it != kept.end();) {
      const bool stay = stays(*it);
      it = stay ? std::next(it) : kept.erase(it);
      changed |= !stay;
    }
  }
  plan.kept_offsets.assign(plan.interval_bytes.size(), -1);
  std::set<int> inputs;
  for (const size_t i : kept) {
    plan.steps[i].kept = true;
    for (const BufferSource& source : plan.launches[plan.steps[i].launch].buffers) {
      if (source.kind == BufferSource::Kind::kInput) {
        inputs.insert(source.index);
        continue;
      }
      int64_t& offset = plan.kept_offsets[source.index];
      if (offset >= 0) continue;
      offset = plan.kept_size_bytes;
      plan.kept_size_bytes += (plan.interval_bytes[source.index].constant() + kAlignment - 1) / kAlignment * kAlignment;
      plan.interval_bytes[source.index] = 0;
    }
  }
  plan.kept_inputs.assign(inputs.begin(), inputs.end());
}

}  // namespace ocl::exec
