// csrc/schedule/choose_template.cpp: pass: gives each contraction, convolution and attention a hand-written kernel.
#include "csrc/schedule/choose_template.h"

#include <algorithm>

#include "csrc/support/error.h"

namespace ocl::schedule {

namespace {

/// True if a dimension is 0. There is nothing to compute then, and the choosers divide by the sizes.
bool is_empty(const ir::Node& node) {
  const auto zero = [](const ir::Shape& sizes) {
    return std::any_of(sizes.begin(), sizes.end(),
                       [](const ir::IndexExpr& size) { return size.is_const() && size.constant() == 0; });
  };
  return zero(node.sizes) || zero(node.reduce_sizes) ||
         std::any_of(node.operands.begin(), node.operands.end(), [&](const ir::View& operand) { return zero(operand.sizes); });
}

/// Calls the chooser of one row. Skips choices that the driver is known to get wrong.
bool choose_of_row(const TemplateRow& row, const std::string& wanted, ir::Graph& graph, ir::NodeId node, const Caps& caps,
                   bool keeps_parameters, const std::set<std::string>& disabled, TemplateChoice& chosen) {
  if (disabled.empty()) return try_row(row, wanted, graph, node, caps, keeps_parameters, chosen);
  const std::vector<ir::Buffer> buffers = graph.buffers;
  const ir::Node original = graph.nodes[node];
  std::vector<std::string> texts = {wanted};
  std::set<std::string> bad;  // Signatures of wrong launches. Choices with different texts may give the same launch.
  for (size_t i = 0; i < texts.size(); ++i) {
    if (!try_row(row, texts[i], graph, node, caps, keeps_parameters, chosen)) return false;
    if (disabled.count(chosen.text) == 0 && bad.count(signature(chosen)) == 0) return true;
    bad.insert(signature(chosen));
    if (i == 0)
      for (const auto& [text, knob] : turned(row, chosen)) texts.push_back(text);
    graph.buffers = buffers;
    graph.nodes[node] = original;
  }
  return false;
}

/// Returns the rows in the order in which their choosers are called. The row of the measured choice is first.
std::vector<const TemplateRow*> rows_for(const Caps& caps, const std::string& wanted) {
  std::vector<const TemplateRow*> rows;
  for (const TemplateRow& row : template_rows())
    if (row.is_for(caps)) rows.push_back(&row);
  std::stable_partition(rows.begin(), rows.end(), [&](const TemplateRow* row) { return row->name() == row_of(wanted); });
  return rows;
}

}  // namespace

bool takes_template(const ir::Node& node) {
  const bool kind =
      node.kind == ir::NodeKind::kContract || node.kind == ir::NodeKind::kConvolve || node.kind == ir::NodeKind::kAttention;
  return kind && !is_empty(node);
}

bool try_row(const TemplateRow& row, const std::string& wanted, ir::Graph& graph, ir::NodeId node, const Caps& caps,
             bool keeps_parameters, TemplateChoice& chosen) {
  chosen = TemplateChoice{};
  if (row_of(wanted) == row.name()) chosen.choices = Choices(wanted);
  ir::Node original = graph.nodes[node];
  TemplateContext context{graph,        node,           row.kernel,      caps, chosen.before, chosen.before_launches,
                          chosen.after, chosen.choices, keeps_parameters};
  if (!row.choose(context, chosen.launch)) {
    graph.nodes[node] = std::move(original);
    return false;
  }
  chosen.text = chosen.choices.text(row.name());
  return true;
}

std::string signature(const TemplateChoice& chosen) {
  const TemplateLaunch& launch = chosen.launch;
  std::string text = kernel_row(launch.kernel).name;
  const auto add = [&](const std::string& part) { text.append(" ").append(part); };
  add(std::to_string(chosen.before.size()));
  add(std::to_string(chosen.after.size()));
  add(std::to_string(launch.scratch_elements));
  for (const auto& [name, value] : launch.defines) add(name + "=" + value);
  for (const TemplateLaunch::Int& value : launch.ints) add(value.value.str());
  for (const ir::IndexExpr& groups : launch.groups) add(groups.str());
  for (const int local : launch.local) add(std::to_string(local));
  return text;
}

std::vector<std::pair<std::string, std::string>> turned(const TemplateRow& row, const TemplateChoice& chosen) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const Choices::Knob& knob : chosen.choices.knobs())
    for (size_t option = 0; option < knob.options.size(); ++option) {
      if (option == knob.taken) continue;
      const std::string setting = knob.name + "=" + knob.options[option];
      std::string text = row.name();
      for (const Choices::Knob& other : chosen.choices.knobs())
        text += " " + (&other == &knob ? setting : other.name + "=" + other.options[other.taken]);
      texts.emplace_back(text, setting);
    }
  return texts;
}

void choose_template(Schedule& schedule, const Caps& caps) {
  ir::Graph& graph = schedule.graph;
  const Measured nothing;
  const Measured& measured = schedule.measured ? *schedule.measured : nothing;
  std::vector<ir::Node> nodes;
  std::map<ir::NodeId, TemplateLaunch> launches;
  const int count = static_cast<int>(graph.nodes.size());
  for (int i = 0; i < count; ++i) {
    const ir::NodeKind kind = graph.nodes[i].kind;
    if (kind != ir::NodeKind::kContract && kind != ir::NodeKind::kConvolve && kind != ir::NodeKind::kAttention) {
      nodes.push_back(graph.nodes[i]);  // Choosers inspect earlier nodes.
      continue;
    }
    const ir::Node original = graph.nodes[i];
    std::string problem, wanted = measured.default_choice;
    if (schedule.tunables || !measured.choices.empty()) {
      problem = problem_of(graph, original, caps);
      if (const auto found = measured.choices.find(problem); found != measured.choices.end()) wanted = found->second;
    }
    bool taken = false;
    TemplateChoice chosen;
    const auto ask = [&](const std::set<std::string>& disabled) {
      for (const TemplateRow* row : rows_for(caps, wanted)) {
        if (!choose_of_row(*row, wanted, graph, i, caps, schedule.keeps_parameters, disabled, chosen)) continue;
        const bool followed = !wanted.empty() && row->name() == row_of(wanted);
        schedule.log.push_back(original.origin.op + ": " + row->name() + " " + chosen.launch.variant +
                               (followed ? ", measured" : ""));
        return true;
      }
      return false;
    };
    if (takes_template(original)) {
      taken = ask(measured.disabled);
      // Attention cannot be computed without a template, so even a disabled choice is better than none.
      if (!taken && kind == ir::NodeKind::kAttention && !measured.disabled.empty()) taken = ask({});
    }
    if (taken) {
      if (schedule.tunables) add_tunable(*schedule.tunables, graph, original, problem);
      for (size_t helper = 0; helper < chosen.before.size(); ++helper) {
        if (const auto own = chosen.before_launches.find(helper); own != chosen.before_launches.end())
          launches.emplace(static_cast<ir::NodeId>(nodes.size()), std::move(own->second));
        nodes.push_back(std::move(chosen.before[helper]));
      }
      launches.emplace(static_cast<ir::NodeId>(nodes.size()), std::move(chosen.launch));
      nodes.push_back(std::move(graph.nodes[i]));
      for (ir::Node& helper : chosen.after) nodes.push_back(std::move(helper));
      continue;
    }
    OCL_ASSERT(kind != ir::NodeKind::kAttention, "attention has no generated form: " + original.origin.op);
    schedule.log.push_back(original.origin.op + ": no template takes it, generated loops");
    nodes.push_back(lower_contraction(graph, original));
  }
  graph.nodes = std::move(nodes);
  schedule.launches = std::move(launches);
  for (ir::Buffer& buffer : graph.buffers)  // Buffers of helper nodes whose layout the chooser left open.
    if (!buffer.strides) buffer.strides = contiguous_strides(buffer.sizes);
}

}  // namespace ocl::schedule
