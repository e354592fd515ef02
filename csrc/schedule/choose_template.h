// csrc/schedule/choose_template.h: pass: gives each contraction, convolution and attention a hand-written kernel. It
// asks the choosers of template_rows() in order, but first the row that was measured to be fastest. If no row accepts,
// the node becomes a Reduce node over masked loads. That is slow, but right for every shape and dtype. Attention always
// finds a row.
#pragma once

#include <map>

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void choose_template(Schedule& schedule, const Caps& caps);

/// The result of a chooser: helper nodes around the node, their launches, the node's launch, and the choice as text.
struct TemplateChoice {
  std::vector<ir::Node> before, after;
  std::map<size_t, TemplateLaunch> before_launches;
  TemplateLaunch launch;
  Choices choices;
  std::string text;
};
/// Asks the chooser of `row` for graph.nodes[node], and writes the result to `chosen`. wanted: the text of a choice
/// whose options are taken; "" for the cost model's. keeps_parameters: see TemplateContext. Returns false if the
/// chooser declines; the node is then unchanged.
bool try_row(const TemplateRow& row, const std::string& wanted, ir::Graph& graph, ir::NodeId node, const Caps& caps,
             bool keeps_parameters, TemplateChoice& chosen);
/// True if templates exist for this kind of node.
bool takes_template(const ir::Node& node);
/// Returns a text that differs for any two different launches of a template.
std::string signature(const TemplateChoice& chosen);
/// Returns the choices of `row` that differ from `chosen` in one knob, as pairs: the choice's text, and "knob=option".
std::vector<std::pair<std::string, std::string>> turned(const TemplateRow& row, const TemplateChoice& chosen);

/// Returns a Reduce node that computes the contraction or convolution `node`. It defines what the templates compute.
ir::Node lower_contraction(const ir::Graph& graph, const ir::Node& node);

}  // namespace ocl::schedule
