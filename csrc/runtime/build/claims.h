// csrc/runtime/build/claims.h: who builds a kernel, when several threads and processes need it at the same time.
#pragma once

#include <set>
#include <string>
#include <utility>

#include "csrc/runtime/opencl/kernel_text.h"

namespace ocl::runtime {

/// The kernels that one build has claimed: among the threads of this process, and through the store among all processes.
class Claims {
 public:
  /// `device`: its index. Two equal boards have equal keys, but each needs programs of its own.
  Claims(int device, const BinaryStore& store) : device_(device), store_(store) {}
  ~Claims() { release_all(); }
  Claims(const Claims&) = delete;
  Claims& operator=(const Claims&) = delete;
  /// Returns false if another thread has claimed the kernel or, with `asks_processes`, another process.
  bool claim(const std::string& key, bool asks_processes);
  void release(const std::string& key);
  void release_all();
  /// Returns when a claim in this process has ended, or after some milliseconds: the end of another process's claim is not
  /// seen.
  static void wait();

 private:
  int device_;
  const BinaryStore& store_;
  std::set<std::string> here_, among_processes_;
};

}  // namespace ocl::runtime
