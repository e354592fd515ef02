// csrc/schedule/pipeline.h: from a graph to its schedule. pipeline.cpp lists the passes: read it first.
#pragma once

#include <string>
#include <vector>

#include "csrc/schedule/schedule.h"

namespace ocl::schedule {

struct PassTrace {
  std::string name;
  double milliseconds = 0;
  bool verified = false;  // the graph was checked after it
};

struct Options {
  bool verify = false;            // run ir::verify between passes
  bool fuse = true;               // off: one launch per node, for debugging
  bool keeps_parameters = false;  // what depends on parameters alone is kept between calls: it gets launches of its own
  std::vector<PassTrace>* trace = nullptr;
  const Measured* measured = nullptr;        // what choose_template follows instead of its models
  std::vector<Tunable>* tunables = nullptr;  // filled with what templates competed for, each problem once
};

/// Runs all passes.
Schedule make_schedule(ir::Graph graph, const Caps& caps, const Options& options);

}  // namespace ocl::schedule
