// csrc/schedule/tunable.h: what can be tuned: a contraction, convolution or attention alone, and the choices there are for it.
#pragma once

#include <string>
#include <vector>

#include "csrc/ir/graph.h"
#include "csrc/schedule/choices.h"
#include "csrc/support/caps.h"

namespace ocl::schedule {

/// A node that templates compete for, as a graph of its own: its operands are inputs, laid out as where it comes from.
struct Tunable {
  std::string problem;
  ir::Graph graph;
};

/// Names the problem that a node poses, for a table of measurements: what it computes, types, sizes, layouts, and what the
/// device may use. Large sizes stand for those nearby: rounded to eighths of a power of two, "+" if no multiple of 4; "?" is
/// known only at run time.
std::string problem_of(const ir::Graph& graph, const ir::Node& node, const Caps& caps);

/// Appends `node` of `graph` unless its problem is there. One with sizes known only at run time cannot be run alone: it is left
/// out. The node's operands have been laid out.
void add_tunable(std::vector<Tunable>& tunables, const ir::Graph& graph, const ir::Node& node, const std::string& problem);

/// The choices for the only node of `alone`: of each row of templates the model's, then those with one knob turned. The first
/// is what an untuned device takes. What launches the same as an earlier one is left out.
struct Candidate {
  std::string choice;
  std::string turned;  // "run=4": the knob that differs from the row's first choice; "" for none
};
std::vector<Candidate> candidates(const ir::Graph& alone, const Caps& caps);

}  // namespace ocl::schedule
