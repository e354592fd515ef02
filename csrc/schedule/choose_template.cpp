// csrc/schedule/choose_template.cpp: pass: gives each contraction, convolution, attention, fft and sort a hand-written kernel.
#include "csrc/schedule/choose_template.h"

#include <algorithm>

#include "csrc/schedule/apply_offer.h"
#include "csrc/schedule/column_parts.h"
#include "csrc/schedule/tunable.h"
#include "csrc/support/error.h"

namespace ocl::schedule {

namespace {

/// Returns the answer of a row, without choices that the driver is known to get wrong.
std::variant<Offer, Refusal> right_answer(const TemplateRow& row, const Request& request, const std::string& wanted,
                                          const std::set<std::string>& disabled) {
  std::variant<Offer, Refusal> first = answer(row, request, wanted);
  if (disabled.empty() || std::holds_alternative<Refusal>(first)) return first;
  std::set<std::string> bad;  // Signatures of wrong launches. Choices with different texts may give the same launch.
  const auto is_right = [&](const Offer& offer) {
    if (disabled.count(offer.text()) == 0 && bad.count(signature(offer)) == 0) return true;
    bad.insert(signature(offer));
    return false;
  };
  if (is_right(std::get<Offer>(first))) return first;
  for (const auto& [text, knob] : turned(std::get<Offer>(first))) {
    std::variant<Offer, Refusal> other = answer(row, request, text);
    if (is_right(std::get<Offer>(other))) return other;
  }
  return Refusal{row.kernel, "this driver gets every choice of it wrong"};
}

/// Returns the rows for a node in the order in which they are asked. The row of the measured choice is first. Kernels of GPUs
/// take more ffts, so a CPU has them too, last.
std::vector<const TemplateRow*> rows_for(const Caps& caps, const ir::Node& node, const std::string& wanted) {
  std::vector<const TemplateRow*> rows;
  for (const TemplateRow& row : template_rows())
    if (row.computes(node) && (row.is_for(caps) || (node.kind == ir::NodeKind::kFft && caps.is_cpu))) rows.push_back(&row);
  std::stable_partition(rows.begin(), rows.end(), [&](const TemplateRow* row) { return row->is_for(caps); });
  std::stable_partition(rows.begin(), rows.end(), [&](const TemplateRow* row) { return row->name() == row_of(wanted); });
  return rows;
}

/// Returns refusals as sentences for explain: "gemm_warpgroup: refused, K = 7 is no multiple of 8". Neighbours with the same
/// reason, such as instructions that a device lacks, share one.
std::vector<std::string> sentences(const std::vector<Refusal>& refusals) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < refusals.size(); ++i) {
    std::string names = kernel_row(refusals[i].kernel).name;
    for (; i + 1 < refusals.size() && refusals[i + 1].reason == refusals[i].reason; ++i)
      names += std::string(", ") + kernel_row(refusals[i + 1].kernel).name;
    lines.push_back(names + ": refused, " + refusals[i].reason);
  }
  return lines;
}

/// Returns the first offer. `refused` gets the refusals before it, as sentences.
std::optional<Offer> first_offer(Request request, const std::string& wanted, const std::set<std::string>& disabled,
                                 std::vector<std::string>& refused) {
  std::vector<Refusal> refusals;
  std::optional<Offer> offer;
  for (const TemplateRow* row : rows_for(request.caps, request.graph.nodes[request.id], wanted)) {
    std::variant<Offer, Refusal> found = right_answer(*row, request, wanted, disabled);
    if (auto* made = std::get_if<Offer>(&found)) {
      offer = std::move(*made);
      break;
    }
    refusals.push_back(std::move(std::get<Refusal>(found)));
  }
  refused = sentences(refusals);
  return offer;
}

}  // namespace

void choose_template(Schedule& schedule, const PassContext& context) {
  ir::Graph& graph = schedule.graph;
  const Caps& caps = context.caps;
  const Measured nothing;
  const Measured& measured = context.measured ? *context.measured : nothing;
  std::vector<ir::Node> nodes;
  std::map<ir::NodeId, TemplateLaunch> launches;
  for (ir::NodeId i = 0; i < static_cast<ir::NodeId>(graph.nodes.size()); ++i) {
    const ir::Node& node = graph.nodes[i];
    if (!takes_template(node)) {
      nodes.push_back(node);
      continue;
    }
    std::string problem, wanted = measured.default_choice;
    if (context.tunables || !measured.choices.empty()) {
      problem = problem_of(graph, node, caps);
      if (const auto found = measured.choices.find(problem); found != measured.choices.end()) wanted = found->second;
    }
    const bool required =
        node.kind == ir::NodeKind::kAttention || node.kind == ir::NodeKind::kFft || node.kind == ir::NodeKind::kSort;
    const Caps granted = with_granted_items(schedule, {i}, caps);
    const Request request{graph, i, KernelId{}, granted, schedule.keeps_parameters};
    std::vector<std::string> refused;
    std::optional<Offer> offer = first_offer(request, wanted, measured.disabled, refused);
    // These cannot be computed without a template, so even a disabled choice is better than none.
    if (!offer && required && !measured.disabled.empty()) offer = first_offer(request, wanted, {}, refused);
    if (!offer) {
      OCL_ASSERT(!required, node.origin.op + " has no generated form" + (refused.empty() ? "" : ": " + refused.front()));
      schedule.log.push_back(node.origin.op + ": no template takes it, generated loops");
      nodes.push_back(lower_contraction(graph, node));
      nodes.back().refused = std::move(refused);
      continue;
    }
    if (offer->part_columns > 0 && cut_columns(graph, i, offer->part_columns)) {
      --i;  // The parts are next.
      continue;
    }
    offer->node.refused = std::move(refused);
    schedule.log.push_back(node.origin.op + ": " + offer->row + " " + offer->launch.variant +
                           (!wanted.empty() && offer->row == row_of(wanted) ? ", measured" : ""));
    if (context.tunables) add_tunable(*context.tunables, graph, node, problem);
    apply_offer(graph, std::move(*offer), nodes, launches);
  }
  graph.nodes = std::move(nodes);
  schedule.launches = std::move(launches);
  for (ir::Buffer& buffer : graph.buffers)  // Buffers of helper nodes whose layout the offer left open.
    if (!buffer.strides) buffer.strides = contiguous_strides(buffer.sizes);
}

}  // namespace ocl::schedule
