// csrc/runtime/program.h: builds kernels from source or loads them from binaries. A BuildError carries the log and the
// source's path.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "csrc/runtime/cl.h"
#include "csrc/support/live.h"

namespace ocl::runtime {

class Device;

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

/// A built program. Each call site creates its own cl_kernel from it.
class Program {
 public:
  Program(Device& device, ProgramHandle handle) : device_(device), handle_(std::move(handle)) {}
  KernelHandle create_kernel(const std::string& name) const;
  Device& device() const { return device_; }
  cl_program get() const { return handle_.get(); }

 private:
  Device& device_;
  ProgramHandle handle_;
  Live<Program> live_;
};

/// Functions that find and store binaries. exec passes functions of the cache, so that runtime does not depend on SQLite. Any
/// function may be empty.
struct BinaryStore {
  std::function<std::string(const std::string& key)> find;  // Returns "" if there is no entry.
  std::function<void(const std::string& key, const std::string& binary)> store;
  // Tells other processes that this one builds the kernel `key`. Returns false if another process is building it.
  std::function<bool(const std::string& key)> claim;
  std::function<void(const std::string& key)> release;  // Ends a claim.
};

/// Returns the prefix of all keys for this device, its driver and its build options.
std::string store_prefix(const Device& device);

/// Counters since the start of the process, for tests and `explain`.
struct BuildCounters {
  int64_t built = 0;        // Kernels compiled from source.
  int64_t from_binary = 0;  // Kernels loaded from the binary cache.
  int64_t rejected = 0;     // Cached binaries that did not load, so that the kernel was built again.
  double build_seconds = 0;
  int64_t by_workers = 0;  // Kernels of `built` that worker processes compiled.
  // Kernels of `built` whose binaries were not kept, because the runtime has its own cache (see keeps_binaries).
  int64_t unkept = 0;
};
BuildCounters build_counters();

/// Returns the program of each text, in order; texts may share a program. Looks every text up among the programs that are in
/// use or were used last, then in `store`. Builds the others in few programs and stores their binaries. A key is store_prefix
/// and a hash of the text. A program with several kernels is stored once, and the entry of each kernel refers to it.
/// Thread-safe. Throws kBuild with kernel, device, `where` and log. Source and log are saved in `failed_dir`/<kernel>/, unless
/// `failed_dir` is "".
std::vector<std::shared_ptr<Program>> build_programs(Device& device, const std::vector<KernelText>& texts,
                                                     const BinaryStore& store, const std::string& failed_dir);
/// Drops the programs in memory that are not in use. The next build looks into the store again.
void forget_programs();

}  // namespace ocl::runtime
