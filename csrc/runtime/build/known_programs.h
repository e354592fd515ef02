// csrc/runtime/build/known_programs.h: the programs that this process has in memory, by key.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace ocl::runtime {

class Program;

/// A program lives while a plan uses it or while it is one of those that were used last. Otherwise a process that keeps
/// compiling would keep the code of every kernel, which takes some MB each on CPU runtimes. The kernel cache has the binaries.
/// Thread-safe.
class KnownPrograms {
 public:
  /// Returns a program of the device with this index, or null. Two equal boards have equal keys but different contexts.
  std::shared_ptr<Program> find(int device, const std::string& key);
  void keep(int device, const std::string& key, const std::shared_ptr<Program>& program);
  void forget();

 private:
  static constexpr size_t kSweepAt = 64;

  void make_recent(const std::shared_ptr<Program>& program);

  std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<Program>> programs_;
  std::deque<std::shared_ptr<Program>> recent_;  // The latest program is last. Each occurs once.
  size_t sweep_at_ = kSweepAt;                   // Number of rows from which rows of dead programs are removed.
};

}  // namespace ocl::runtime
