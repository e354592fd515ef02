// csrc/runtime/opencl/kernel_text.h: the text of a kernel to build, and functions that find and store binaries.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string>

namespace ocl::runtime {

/// A line of a program text that separates its prelude from its kernel. Above the line is the prelude (types, macros, helper
/// functions), which other texts repeat word for word; below it is the kernel. Texts with equal preludes and no #define below
/// the line are built as one program, which takes a third of the time of building each alone.
inline constexpr char kKernelMarker[] = "//@kernel\n";

/// A kernel to build: a complete program text that defines exactly one kernel, `name`.
struct KernelText {
  std::string name;
  std::string text;
  // "group 4 of the forward graph: aten.relu, aten.sum (model.py:61)", for messages.
  std::string where;
  std::array<size_t, 3> local{1, 1, 1};  // The local size of its launches.
};

/// Functions that find and store binaries. exec passes functions of the cache, so that runtime does not depend on SQLite. Any
/// function may be empty.
struct BinaryStore {
  std::function<std::string(const std::string& key)> find;  // Returns "" if there is no entry.
  std::function<void(const std::string& key, const std::string& binary)> store;
  // Tells other processes that this one builds the kernel `key`. Returns false if another process is building it.
  std::function<bool(const std::string& key)> claim;
  std::function<void(const std::string& key)> release;  // Ends a claim.
  bool complete = false;  // Also store kernels that this process has in memory, so that the store has all that was asked for.
};

}  // namespace ocl::runtime
