// csrc/exec/faults.cpp: see faults.h.
#include "csrc/exec/faults.h"

#include <mutex>
#include <utility>

namespace ocl::exec {
namespace {

struct Planted {
  std::mutex mutex;
  std::vector<Fault> faults;
};

Planted& planted() {
  static auto* instance = new Planted;  // Never destroyed, because threads may outlive static destruction.
  return *instance;
}

}  // namespace

void plant(std::vector<Fault> faults) {
  const std::lock_guard lock(planted().mutex);
  planted().faults = std::move(faults);
}

bool are_planted() {
  const std::lock_guard lock(planted().mutex);
  return !planted().faults.empty();
}

void apply_faults(codegen::KernelSource& source) {
  const std::lock_guard lock(planted().mutex);
  for (const auto& [kernel, part, by] : planted().faults) {
    if (!kernel.empty() && kernel != source.name) continue;
    if (part.empty()) source.text += by;
    for (size_t at = part.empty() ? std::string::npos : source.text.find(part); at != std::string::npos;
         at = source.text.find(part, at + by.size()))
      source.text.replace(at, part.size(), by);
  }
}

}  // namespace ocl::exec
