// csrc/torch/first_use.cpp: see first_use.h.
#include "csrc/torch/first_use.h"

#include <atomic>
#include <utility>

namespace ocl::aten {
namespace {

std::function<void()>& action() {
  static auto* instance = new std::function<void()>;  // Never destroyed, because threads may outlive static destruction.
  return *instance;
}
std::atomic<bool> g_used{false};

}  // namespace

void set_before_first_use(std::function<void()> before) { action() = std::move(before); }

void note_use() {
  if (g_used.load(std::memory_order_relaxed) || g_used.exchange(true)) return;
  if (action()) action()();
}

}  // namespace ocl::aten
