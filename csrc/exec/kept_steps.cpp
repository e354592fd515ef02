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

// Results of this many bytes are not kept if the time to compute them in each call is small. Smaller ones would free little.
constexpr double kLeastFreed = 1 << 20;
constexpr double kShareOfTime = 0.05;  // Of the graph's estimated time, for all of them together. 3 % of the measured time.
// Of the time of its last reader, for each. With few rows for a weight, packing it takes longer.
constexpr double kShareOfReader = 0.25;
constexpr size_t kMostSteps = 8;  // From such a result to its last reader. The arena holds it meanwhile.
// What the time of an access to a byte allows, on an H200: operations of products in float32 and in other types, and launches
// that wait behind others in the queue. Devices with less for a byte have longer graphs, so they stay below the share.
constexpr double kWideFlopsPerByte = 42, kFlopsPerByte = 200, kBytesPerLaunch = 1e-6 * 3.5e12;

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

/// The estimated time of a step, in bytes of memory that are accessed meanwhile; 0 if it depends on the sizes of a call.
double time_of(const Plan& plan, size_t step) {
  if (plan.steps[step].launch == ir::kNone) return 0;
  const Launch& launch = plan.launches[static_cast<size_t>(plan.steps[step].launch)];
  if (!launch.work.bytes.is_const() || !launch.work.flops.is_const()) return 0;
  const ir::Graph& graph = plan.schedule.graph;
  const std::vector<ir::NodeId> nodes = plan.schedule.groups[static_cast<size_t>(launch.group)].nodes();
  const bool wide = std::ranges::any_of(nodes, [&](ir::NodeId id) {
    const ir::Node& node = graph.nodes[id];
    return !node.operands.empty() && !node.reduced_precision &&
           ir::size_bytes(graph.buffers[node.operands[0].buffer].dtype) >= 4;
  });
  return std::max(static_cast<double>(launch.work.bytes.constant()),
                  static_cast<double>(launch.work.flops.constant()) / (wide ? kWideFlopsPerByte : kFlopsPerByte));
}

/// Returns those of the kept steps that each call computes: their results are large, live shortly, and together take little of
/// the graph's time. The memory for the largest of them is needed in each call, so the others are what is freed; of the choices
/// that begin with the largest, the second largest, ..., the one that frees most is taken.
std::vector<size_t> computed_in_each_call(const Plan& plan, const std::set<size_t>& kept, const std::vector<Writes>& writes) {
  double most_time = 0;
  std::vector<std::pair<double, size_t>> large;  // Bytes, step.
  std::set<int> read;                            // What kept steps make of what others keep stays with it.
  for (const size_t step : kept)
    for (const BufferSource& source : plan.launches[static_cast<size_t>(plan.steps[step].launch)].buffers)
      if (source.kind == BufferSource::Kind::kArena && !writes[step].intervals.count(source.index)) read.insert(source.index);
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    if (!kept.count(i)) {
      most_time += kShareOfTime * time_of(plan, i);
      continue;
    }
    double bytes = 0, reader = 0;
    bool is_short = true;
    for (const int interval : writes[i].intervals) {
      const auto last = static_cast<size_t>(plan.intervals[static_cast<size_t>(interval)].last);
      bytes += static_cast<double>(plan.interval_bytes[static_cast<size_t>(interval)].constant());
      reader = std::max(reader, time_of(plan, last));
      is_short &= !read.count(interval) && last - i <= kMostSteps;
    }
    const bool is_cheap = time_of(plan, i) + kBytesPerLaunch <= kShareOfReader * reader;
    if (is_short && is_cheap && bytes >= kLeastFreed) large.emplace_back(bytes, i);
  }
  std::ranges::stable_sort(large, [](const auto& a, const auto& b) { return a.first > b.first; });
  double most = 0;
  std::vector<size_t> found;
  for (size_t first = 0; first < large.size(); ++first) {
    double time = 0, freed = -large[first].first;
    std::vector<size_t> steps;
    for (size_t k = first; k < large.size(); ++k) {
      time += time_of(plan, large[k].second) + kBytesPerLaunch;
      if (time > most_time) break;
      freed += large[k].first;
      steps.push_back(large[k].second);
    }
    if (freed <= most) continue;
    most = freed;
    found = std::move(steps);
  }
  return found;
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
  const auto erase_others = [&] {
    for (bool changed = true; changed;) {
      changed = false;
      for (auto it = kept.begin(); it != kept.end();) {
        const bool stay = stays(*it);
        it = stay ? std::next(it) : kept.erase(it);
        changed |= !stay;
      }
    }
  };
  erase_others();
  for (const size_t step : computed_in_each_call(plan, kept, writes)) kept.erase(step);
  erase_others();
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
