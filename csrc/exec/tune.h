// csrc/exec/tune.h: what tuning needs of the compiler: the problems of a graph with their candidates, and the measured choices
// that later compilations follow. Running and timing candidates is Python's part (tuning/measure.py).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "csrc/exec/plan.h"

namespace ocl::exec {

/// A problem alone and the choices for it; see schedule/tunable.h.
struct TuningCase {
  std::string problem;
  ir::Graph graph;
  std::vector<schedule::Candidate> candidates;
};
/// What templates compete for in the graph on a device with these caps, each problem once.
std::vector<TuningCase> tuning_cases(ir::Graph graph, const Caps& caps);

/// Replaces what compilations for a device follow from now on. Thread-safe, as `measured_of`, which never returns null.
void set_measured(int device, schedule::Measured measured);
std::shared_ptr<const schedule::Measured> measured_of(int device);

}  // namespace ocl::exec
