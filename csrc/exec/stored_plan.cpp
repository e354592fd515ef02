// csrc/exec/stored_plan.cpp: see stored_plan.h.
#include "csrc/exec/stored_plan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>

#include "csrc/checks/quick_check.h"
#include "csrc/exec/faults.h"
#include "csrc/exec/fill_plan.h"
#include "csrc/exec/make_plan.h"
#include "csrc/exec/tune.h"
#include "csrc/ir/parse.h"
#include "csrc/support/archive.h"
#include "csrc/support/build_id.h"
#include "csrc/support/error.h"
#include "csrc/support/hash.h"
#include "csrc/support/log.h"

namespace ocl::exec {
namespace {

void pass(Archive& archive, BufferSource& source) {
  archive(source.kind, source.index, source.element_bytes, source.offset, source.slot);
}

void pass(Archive& archive, Launch& launch) {
  codegen::KernelSource& source = launch.source;
  archive(source.name, source.kind, source.groups, source.local, launch.origin, launch.group, launch.ops);
  archive.list(source.ints, [&](codegen::IntArg& arg) { archive(arg.value, arg.wide, arg.slot); });
  archive.list(launch.buffers, [&](BufferSource& buffer) { pass(archive, buffer); });
}

/// Everything of a plan that running it needs, except for its programs.
void pass(Archive& archive, Plan& plan) {
  ir::Graph& graph = plan.schedule.graph;
  archive.list(graph.buffers, [&](ir::Buffer& buffer) { archive(buffer.dtype, buffer.sizes, buffer.strides, buffer.donated); });
  archive.list(graph.outputs, [&](ir::Output& output) { archive(output.buffer, output.sizes, output.strides, output.offset); });
  archive(graph.inputs, graph.symbols, plan.schedule.allocations);
  archive.list(plan.launches, [&](Launch& launch) { pass(archive, launch); });
  archive.list(plan.steps, [&](Step& step) { archive(step.launch, step.kept); });
  archive.list(plan.intervals, [&](schedule::Interval& interval) { archive(interval.first, interval.last); });
  archive.list(plan.output_sources, [&](BufferSource& source) { pass(archive, source); });
  archive(plan.interval_bytes, plan.written_inputs, plan.kept_size_bytes, plan.kept_inputs, plan.kept_offsets);
}

/// Two processes with equal keys make equal plans. `verdict`: what the driver is known to get wrong (checks/quick_check.h).
std::string key_of(const std::string& graph_key, const runtime::Device& device, const PlanOptions& options,
                   const std::string& verdict) {
  const Caps& caps = device.caps();
  std::string all = "plan " + build_id() + ' ' + graph_key + '\0' + verdict;
  // What the name and the driver of a device do not determine: a container may have fewer cores, or less memory, and
  // processors of one name differ in their instructions.
  for (const int64_t number :
       {int64_t{caps.units}, static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(caps.global_bytes))),
        int64_t{options.most_kept_bytes > 0}, int64_t{options.vector_floats}, int64_t{options.units},
        int64_t{options.schedule.fuse}, int64_t{options.tuned}})
    all += ' ' + std::to_string(number);
  for (const KernelRow& row : kernel_rows())
    for (const KernelRow::Checked& checked : row.types)
      if (caps.is_cpu && checked.tolerance > 0 && caps.kernels.has(row.id, checked.type))
        all += std::string(" ") + row.name + ':' + name(checked.type);
  all += ' ' + options.kernel_family;
  for (const std::string& kernel : options.disable) all += '\0' + kernel;
  if (options.tuned) {
    const std::shared_ptr<const schedule::Measured> measured = measured_of(device.index());
    for (const auto& [problem, choice] : measured->choices) all += '\0' + problem + '\0' + choice;
    for (const std::string& disabled : measured->disabled) all += '\0' + disabled;
  }
  return runtime::store_prefix(device) + hash_hex(all);
}

/// True if a plan with these options may be taken from the store. A profile changes texts and limits of kernels.
bool can_keep(const ir::Graph& graph, const runtime::Device& device, const runtime::BinaryStore& store,
              const PlanOptions& options) {
  const bool plain = options.dump_dir.empty() && options.choice.empty() && !options.check && !options.guard_zones &&
                     options.schedule.alone.empty() && !options.schedule.verify && !are_planted();
  return plain && store.find && store.store && !device.profile() && !build_id().empty() &&
         std::ranges::none_of(graph.nodes, [](const ir::Node& node) { return node.kind == ir::NodeKind::kCall; });
}

/// Returns the plan in `text` with programs from the store. Null if one of them is missing, or if the text is no plan.
std::unique_ptr<Plan> read_plan(const std::string& text, runtime::Device& device, const runtime::BinaryStore& store) {
  auto plan = std::make_unique<Plan>();
  std::vector<std::string> keys, names;
  try {
    Archive archive(text, "a stored plan");
    archive(keys);
    pass(archive, *plan);
  } catch (const Error&) {
    return nullptr;
  }
  for (const Launch& launch : plan->launches) names.push_back(launch.source.name);
  plan->programs = runtime::find_programs(device, names, keys, store);
  return plan->programs.size() == plan->launches.size() ? std::move(plan) : nullptr;
}

}  // namespace

void keep_plan(const Plan& plan, const std::string& graph_key, const runtime::BinaryStore& store, const PlanOptions& options) {
  if (plan.whole || !can_keep(plan.schedule.graph, *plan.device, store, options)) return;
  const std::string prefix = runtime::store_prefix(*plan.device);
  std::vector<std::string> keys;
  std::vector<runtime::KernelText> texts;
  for (const Launch& launch : plan.launches) {
    keys.push_back(runtime::kernel_key(prefix, launch.source.name, launch.source.text));
    texts.push_back({launch.source.name, launch.source.text, launch.origin, launch.source.local});
  }
  const auto is_missing = [&](const std::string& kernel) { return store.find(kernel).empty(); };
  if (std::ranges::any_of(keys, is_missing)) {
    // Kernels that the process had in memory, from another store or before this one was cleared.
    runtime::BinaryStore complete = store;
    complete.complete = true;
    runtime::build_programs(*plan.device, texts, complete, options.failed_dir);
    if (std::ranges::any_of(keys, is_missing)) return;
  }
  Archive archive;
  archive(keys);
  pass(archive, const_cast<Plan&>(plan));  // An archive that writes changes nothing.
  if (const auto verdict = checks::known_verdict(*plan.device, store))
    store.store(key_of(graph_key, *plan.device, options, *verdict), archive.text());
}

std::unique_ptr<const Plan> find_or_make_plan(const ir::Graph& graph, const std::string& graph_key, runtime::Device& device,
                                              const runtime::BinaryStore& store, const PlanOptions& options) {
  if (!can_keep(graph, device, store, options)) return make_plan(graph, device, store, options);
  const auto begin = std::chrono::steady_clock::now();
  // Without a verdict on the driver, the plan is made, and the driver checked meanwhile.
  const std::optional<std::string> verdict = checks::known_verdict(device, store);
  if (const std::string text = verdict ? store.find(key_of(graph_key, device, options, *verdict)) : ""; !text.empty()) {
    if (std::unique_ptr<Plan> plan = read_plan(text, device, store)) {
      describe_plan(*plan, device, options);
      plan->most_kept_bytes = options.most_kept_bytes;
      for (Launch& launch : plan->launches) launch.name_id = runtime::kernel_name_id(launch.source.name);
      plan->build_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      plan->whole = std::make_shared<WholePlan>([=, &device] { return make_plan(graph, device, store, options); });
      return plan;
    }
    log_message(LogLevel::kInfo, "exec",
                "the plan of " + options.label + " is made anew: the stored one lacks kernels or is damaged");
  }
  std::unique_ptr<const Plan> plan = make_plan(graph, device, store, options);
  keep_plan(*plan, graph_key, store, options);
  return plan;
}

}  // namespace ocl::exec
