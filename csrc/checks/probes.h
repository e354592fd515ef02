// csrc/checks/probes.h: small programs that show whether a driver computes what kernels rely on.
#pragma once

#include <string>
#include <vector>

#include "csrc/runtime/build/trial.h"

namespace ocl::checks {

/// What a driver may get wrong.
struct Probe {
  std::vector<std::string> words;  // A kernel that contains one of them uses what is probed. Empty: every kernel does.
  std::string unless;              // A kernel that contains this word has a replacement. "": there is none.
  runtime::TrialRun run;           // Its name is for messages: "exp", "barriers". Its program is the only one of the trial.
};

/// Probes that share a program.
struct ProbeProgram {
  std::string text;
  std::vector<Probe> probes;
};

/// Returns all probes. They are the same for every device.
const std::vector<ProbeProgram>& probe_programs();

inline constexpr char kBarriers[] = "barriers", kLocalMemory[] = "local memory", kHalves[] = "halves",
                      kPlain[] = "sums and products", kWorkGroups[] = "kernels of work-groups";

}  // namespace ocl::checks
