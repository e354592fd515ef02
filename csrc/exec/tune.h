// csrc/exec/tune.h: the compiler's part of tuning. It lists the problems of a graph with their candidates, and keeps
// the measured choices that later compilations follow. Python runs and times the candidates (tuning/measure.py).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "csrc/schedule/pipeline.h"

namespace ocl::exec {

/// A problem as a graph of its own, and the candidates for it; see schedule/tunable.h.
struct TuningCase {
  std::string problem;
  ir::Graph graph;
  std::vector<schedule::Candidate> candidates;
};
/// Returns the problems of the graph for which several templates or parameters compete, for a device with these caps. Each
/// problem occurs once.
std::vector<TuningCase> tuning_cases(ir::Graph graph, const Caps& caps);

/// set_measured replaces the choices that later compilations for a device follow. measured_of returns them and is never
/// null. Both are thread-safe.
void set_measured(int device, schedule::Measured measured);
std::shared_ptr<const schedule::Measured> measured_of(int device);

}  // namespace ocl::exec
