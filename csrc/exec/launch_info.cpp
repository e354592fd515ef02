// csrc/exec/launch_info.cpp: see launch_info.h.
#include "csrc/exec/launch_info.h"

#include <algorithm>

namespace ocl::exec {
namespace {

/// Returns "convolution" for "aten.convolution.default".
std::string short_op(const std::string& op) {
  const size_t first = op.find('.'), last = op.rfind('.');
  if (first == std::string::npos || first == last) return op;
  return op.substr(first + 1, last - first - 1);
}

void add(std::vector<std::string>& list, const std::string& item) {
  if (!item.empty() && std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
}

/// Returns the first `most` elements of the list and the number of the others, such as "relu, sum +3".
std::string some_of(const std::vector<std::string>& list, size_t most) {
  std::string text;
  for (size_t i = 0; i < std::min(list.size(), most); ++i) text += (i ? ", " : "") + list[i];
  if (list.size() > most) text += " +" + std::to_string(list.size() - most);
  return text;
}

std::string sizes_text(const RunState& state, const schedule::Extent& extent) {
  const auto times = [&](const ir::Shape& sizes) {
    std::string text;
    for (const ir::IndexExpr& size : sizes) text.append(text.empty() ? "" : "x").append(std::to_string(value_of(state, size)));
    return text.empty() ? "1" : text;
  };
  return times(extent.sizes) + (extent.others.empty() ? "" : " " + extent.word + " " + times(extent.others));
}

/// Returns a title such as "gemm 64x10x4096 @ model.py:61, 5.24 MFLOP, 1.20 MB: addmm".
std::string title(const RunState& state, const Plan& plan, const Launch& launch, const runtime::LaunchInfo& info) {
  const schedule::Group& group = plan.schedule.groups[launch.group];
  std::vector<std::string> ops, sources;
  for (const ir::NodeId node : group.nodes()) {
    const ir::Origin& origin = plan.schedule.graph.nodes[node].origin;
    add(ops, short_op(origin.op));
    add(sources, origin.source);
  }
  if (sources.empty()) add(sources, plan.op);
  std::string text = info.kind + " " + sizes_text(state, schedule::extent_of(plan.schedule, group));
  if (!sources.empty()) text += " @ " + some_of(sources, 1);
  if (info.flops > 0) text += ", " + runtime::amount(static_cast<double>(info.flops), "FLOP");
  text += ", " + runtime::amount(static_cast<double>(info.bytes), "B");
  if (!ops.empty()) text += ": " + some_of(ops, 3);
  return text;
}

}  // namespace

runtime::LaunchInfoPtr launch_info(const RunState& state, size_t index) {
  const Plan& plan = whole_plan(state.plan);
  const Launch& launch = plan.launches.at(index);
  auto info = std::make_shared<runtime::LaunchInfo>();
  info->kernel = launch.source.name;
  info->kind = launch.source.kind;
  info->origin = launch.origin;
  info->graph = state.plan.label;
  info->group = launch.group;
  info->global = state.launches[index].global;
  info->local = launch.source.local;
  info->ops = launch.ops;
  info->bytes = value_of(state, launch.work.bytes);
  info->flops = value_of(state, launch.work.flops);
  const schedule::Group& group = plan.schedule.groups[launch.group];
  if (group.kind == schedule::GroupKind::kTemplate) info->tensor_cores = kernel_row(group.launch.kernel).on_tensor_cores();
  info->title = title(state, plan, launch, *info);
  return info;
}

}  // namespace ocl::exec
