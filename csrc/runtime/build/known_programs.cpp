// csrc/runtime/build/known_programs.cpp: see known_programs.h.
#include "csrc/runtime/build/known_programs.h"

#include <algorithm>

namespace ocl::runtime {
namespace {

constexpr size_t kRecent = 64;  // Number of programs that are kept even if no plan uses them.

std::string memory_key(int device, const std::string& key) { return std::to_string(device) + ":" + key; }

}  // namespace

std::shared_ptr<Program> KnownPrograms::find(int device, const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto row = programs_.find(memory_key(device, key));
  std::shared_ptr<Program> program = row == programs_.end() ? nullptr : row->second.lock();
  if (program) make_recent(program);
  return program;
}

void KnownPrograms::keep(int device, const std::string& key, const std::shared_ptr<Program>& program) {
  const std::lock_guard lock(mutex_);
  programs_[memory_key(device, key)] = program;
  make_recent(program);
  if (programs_.size() < sweep_at_) return;
  std::erase_if(programs_, [](const auto& row) { return row.second.expired(); });
  sweep_at_ = std::max(kSweepAt, 2 * programs_.size());
}

void KnownPrograms::forget() {
  const std::lock_guard lock(mutex_);
  programs_.clear();
  recent_.clear();
}

void KnownPrograms::make_recent(const std::shared_ptr<Program>& program) {
  std::erase(recent_, program);
  recent_.push_back(program);
  if (recent_.size() > kRecent) recent_.pop_front();
}

}  // namespace ocl::runtime
