// csrc/exec/tune.cpp: the tuning problems and candidates of a graph, and the measured choices of each device.
#include "csrc/exec/tune.h"

#include <map>
#include <mutex>
namespace ocl::exec {
namespace {

struct Table {
  std::mutex mutex;
  std::map<int, std::shared_ptr<const schedule::Measured>> of_device;
};
Table& table() {
  // Never destroyed, because compiling threads may outlive static destruction.
  static Table* instance = new Table;
  return *instance;
}

}  // namespace

std::vector<TuningCase> tuning_cases(ir::Graph graph, const Caps& caps) {
  std::vector<schedule::Tunable> tunables;
  schedule::Options options;
  options.tunables = &tunables;
  schedule::make_schedule(std::move(graph), caps, options);
  std::vector<TuningCase> cases;
  for (schedule::Tunable& tunable : tunables) {
    std::vector<schedule::Candidate> found = schedule::candidates(tunable.graph, caps);
    cases.push_back({std::move(tunable.problem), std::move(tunable.graph), std::move(found)});
  }
  return cases;
}

void set_measured(int device, schedule::Measured measured) {
  auto shared = std::make_shared<const schedule::Measured>(std::move(measured));
  const std::lock_guard lock(table().mutex);
  table().of_device[device] = std::move(shared);
}

std::shared_ptr<const schedule::Measured> measured_of(int device) {
  const std::lock_guard lock(table().mutex);
  std::shared_ptr<const schedule::Measured>& found = table().of_device[device];
  if (!found) found = std::make_shared<const schedule::Measured>();
  return found;
}

}  // namespace ocl::exec
