// csrc/schedule/choose_template.h: pass: a hand-written kernel for each contraction and convolution, by asking template_rows()
// in order, or first the row that was measured to be the fastest. What no row takes becomes a Reduce node over masked loads:
// slow, and right for every shape and dtype.
#pragma once

#include <map>

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void choose_template(Schedule& schedule, const Caps& caps);

/// What a row's chooser made of a node: helpers around it, its launch, and the choice as text.
struct Chosen {
  std::vector<ir::Node> before, after;
  std::map<size_t, TemplateLaunch> before_launches;
  TemplateLaunch launch;
  Choices choices;
  std::string text;
};
/// Asks the chooser of `row` for graph.nodes[node]; false: it declines, and the node is as it was.
bool ask_row(const TemplateRow& row, const std::string& wanted, ir::Graph& graph, ir::NodeId node, const Caps& caps,
             bool keeps_parameters, Chosen& chosen);
/// Whether templates exist for this kind of node.
bool takes_template(const ir::Node& node);
/// Everything that makes two launches of a template differ.
std::string signature(const Chosen& chosen);
/// The choices of `row` that differ from `chosen` in one knob: choice, knob with its option.
std::vector<std::pair<std::string, std::string>> turned(const TemplateRow& row, const Chosen& chosen);

/// The contraction or convolution `node` as a Reduce node: the definition of what the templates compute.
ir::Node lower_contraction(const ir::Graph& graph, const ir::Node& node);

}  // namespace ocl::schedule
