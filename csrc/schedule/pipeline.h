// csrc/schedule/pipeline.h: makes a schedule from a graph. pipeline.cpp lists the passes.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/schedule/schedule.h"
#include "csrc/schedule/tunable.h"

namespace ocl::schedule {

struct PassTrace {
  std::string name;
  double milliseconds = 0;
  bool verified = false;  // The graph was verified after the pass.
};

struct Options {
  bool verify = false;  // Run ir::verify between passes.
  bool fuse = true;     // False: one launch per node, for debugging.
  // (op, source line) of nodes that get kernels of their own, without vectors, because the driver's compiler ended on a kernel
  // of theirs.
  std::set<std::pair<std::string, std::string>> alone;
  // (op, source line) -> the largest number of work-items of the kernels for these nodes, because the driver grants them no
  // more.
  std::map<std::pair<std::string, std::string>, int> most_items;
  // Results that depend only on parameters are kept between calls, so they get launches of their own.
  bool keeps_parameters = false;
  std::vector<PassTrace>* trace = nullptr;
  const Measured* measured = nullptr;  // Measured choices, which choose_template prefers to its cost models.
  // Filled with the problems for which several templates or parameters compete, each once.
  std::vector<Tunable>* tunables = nullptr;
};

/// Runs all passes.
Schedule make_schedule(ir::Graph graph, const Caps& caps, const Options& options);

}  // namespace ocl::schedule
