// csrc/schedule/tunable.h: what can be tuned: a single contraction, convolution or attention, and the choices for it.
#pragma once

#include <string>
#include <vector>

#include "csrc/kernels/caps.h"
#include "csrc/schedule/offer/choices.h"
#include "csrc/schedule/offer/names.h"

namespace ocl::schedule {

/// A node for which several templates compete, as a graph of its own. Its operands are inputs with the layout of the
/// original.
struct Tunable {
  std::string problem;
  ir::Graph graph;
};

/// Returns the name of a node's problem, for a table of measurements: its operation, dtypes, sizes and layouts, and the
/// levels of kernels that the device may use. Large sizes are rounded to eighths of a power of two, so that one
/// measurement serves similar sizes. "+" follows a size that is no multiple of 4. "?" is a size that is known only at
/// run time.
std::string problem_of(const ir::Graph& graph, const ir::Node& node, const Caps& caps);

/// Appends `node` of `graph`, unless its problem is already listed. A node with sizes that are known only at run time
/// is left out, because it cannot be run alone. The node's operands must have strides.
void add_tunable(std::vector<Tunable>& tunables, const ir::Graph& graph, const ir::Node& node, const std::string& problem);

/// A choice that tuning may try.
struct Candidate {
  std::string choice;
  // The knob that differs from the row's first choice: "run=4". "" if none does.
  std::string turned;
};
/// Returns the choices for the only node of `alone`: for each template row, the cost model's choice, and the choices that
/// differ from it in one knob. The first candidate is what an untuned device takes. A choice with the same launch as an
/// earlier one is left out.
std::vector<Candidate> candidates(const ir::Graph& alone, const Caps& caps);

}  // namespace ocl::schedule
