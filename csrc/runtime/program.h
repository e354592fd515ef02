// csrc/runtime/program.h: source or binary -> kernels. A build failure is a BuildError that carries log and source path.
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

/// A line of its own in a text: what lies above is a prelude that other texts repeat word for word (types, macros, helper
/// functions), what lies below is the kernel. Texts of one call with equal preludes and no #define below the line are built
/// as one program, which costs a third of building each alone.
inline constexpr char kKernelMarker[] = "//@kernel\n";

/// One kernel to build: its complete program text, which defines exactly the kernel `name`.
struct KernelText {
  std::string name;
  std::string text;
  std::string where;                     // "group 4 of the forward graph: aten.relu, aten.sum (model.py:61)", for messages
  std::array<size_t, 3> local{1, 1, 1};  // local size it will be launched with
};

/// A built program; kernels are created from it, one cl_kernel per call site.
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

/// Looks a binary up and stores one; exec passes the cache in, so that runtime knows nothing of SQLite. Either may be empty.
struct BinaryStore {
  std::function<std::string(const std::string& key)> find;  // "" when absent
  std::function<void(const std::string& key, const std::string& binary)> store;
};

/// What the keys of all entries begin with that hold for this device, its driver and its build options.
std::string store_prefix(const Device& device);

/// Counters since the start of the process: tests and `explain` read them.
struct BuildCounters {
  int64_t built = 0;        // kernels compiled from source
  int64_t from_binary = 0;  // kernels loaded from the binary cache
  int64_t rejected = 0;     // cached binaries that did not load and were rebuilt
  double build_seconds = 0;
  int64_t by_workers = 0;  // those of `built` that worker processes compiled
  int64_t unkept = 0;  // those of `built` whose binaries were not kept, because the runtime has its own cache (keeps_binaries)
};
BuildCounters build_counters();

/// False if the device is known to compile at the first launch: its binaries are not asked for, as that compiles them again.
bool keeps_binaries(const Device& device);

/// Returns one Program per text, in order (texts may share one). Looks every text up in `store` first, builds the rest in few
/// programs, stores their binaries. Key = store_prefix + hash of the text; a program of several kernels is
/// stored once, and each kernel's key leads to it. Process-wide memory: a program that is in use, or was among the latest
/// few, is not built again. Thread-safe. Throws kBuild: kernel, device, `where`, log; source and log are saved under
/// `failed_dir`/<kernel>/ ("" saves nothing).
std::vector<std::shared_ptr<Program>> build_programs(Device& device, const std::vector<KernelText>& texts,
                                                     const BinaryStore& store, const std::string& failed_dir);
/// Forgets the programs in memory: the next build looks into the store again. Programs in use stay.
void forget_programs();

}  // namespace ocl::runtime
