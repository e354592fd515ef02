// csrc/exec/plan_options.h: how a graph is compiled.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/schedule/pipeline.h"

namespace ocl::exec {

struct PlanOptions {
  schedule::Options schedule;
  int64_t most_kept_bytes = 0;       // Limit on the bytes of kept weights over all plans. 0: nothing is kept.
  std::vector<std::string> disable;  // Names of kernels that must not be used: "warpgroup", "conv_statistics".
  // "item": use CPU kernels; "group": use GPU kernels; "" or "auto": decide by the device's caps.
  std::string kernel_family;
  int vector_floats = 0;   // Width of a CPU's vectors in floats. 0: the device's width.
  int units = 0;           // Number of compute units to divide work among. 0: the device's number.
  std::string label;       // Name of the graph in messages: "forward graph 3".
  std::string op;          // Name of the op in a plan for one eager op: "aten::add".
  std::string failed_dir;  // Folder for source and log of a kernel that does not build.
  std::string dump_dir;    // Folder for the text of every kernel. "": not written.
  // A candidate that tuning tries for every problem. "": use measured choices or the cost models.
  std::string choice;
  bool tuned = true;         // Use measured choices.
  bool check = false;        // Compares the results of every launch with the interpreter's.
  bool guard_zones = false;  // Fills memory with NaN and looks for stores beside buffers, see guard_zones.h.
};

}  // namespace ocl::exec
