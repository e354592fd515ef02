// csrc/checks/graph_cases.h: small graphs that show whether a device's driver computes each kind of kernel as it should.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "csrc/kernels/caps.h"
#include "csrc/runtime/build/trial.h"

namespace ocl::checks {

using Numbers = std::vector<double>;

/// A graph whose launches are made as for a user's graph, with the kernels that the device would get.
struct GraphCase {
  const char* name;                // For messages: "scans".
  std::vector<std::string> kinds;  // What is not used if the case fails: kinds of kernels, as kind_of() says.
  bool hand_written;               // True if only graphs with kernels of these kinds need the case.
  const char* graph;               // As ir::parse_graph reads it. Its results are fp32.
  // Returns the elements of all results, of the elements of the inputs.
  std::function<Numbers(const std::vector<Numbers>& inputs)> exact;
};

const std::vector<GraphCase>& graph_cases();
/// Returns the case as a trial for a device with these caps.
runtime::Trial trial_of(const GraphCase& each, const Caps& caps);
/// Returns what GraphCase::kinds calls a kernel of this kind and name (codegen::KernelSource): "scan".
std::string kind_of(const std::string& kind, const std::string& name);

}  // namespace ocl::checks
