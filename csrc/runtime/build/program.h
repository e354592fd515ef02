// csrc/runtime/build/program.h: builds kernels from source or loads them from binaries. A BuildError carries the log and the
// source's path.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "csrc/runtime/opencl/cl.h"
#include "csrc/runtime/opencl/kernel_text.h"
#include "csrc/support/error.h"
#include "csrc/support/live.h"

namespace ocl::runtime {

class Device;

/// A built program. Each call site creates its own cl_kernel from it.
class Program {
 public:
  Program(Device& device, ProgramHandle handle) : device_(device), handle_(std::move(handle)) {}
  /// If the device has a profile that the kernel exceeds, an error of kind `blame` is thrown.
  KernelHandle create_kernel(const std::string& name, ErrorKind blame = ErrorKind::kInternal) const;
  Device& device() const { return device_; }
  cl_program get() const { return handle_.get(); }

 private:
  Device& device_;
  ProgramHandle handle_;
  Live<Program> live_;
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
/// A kernel on which the compiler's process ends is built a second time without optimisation, with a warning. If the process
/// ends again, the store remembers it, and CompilerCrash is thrown after everything else is built. GroupRefused is thrown in
/// the same way for kernels that the driver grants fewer work-items than `local`.
std::vector<std::shared_ptr<Program>> build_programs(Device& device, const std::vector<KernelText>& texts,
                                                     const BinaryStore& store, const std::string& failed_dir);
/// Returns the key of a kernel in the store. prefix: store_prefix() of its device.
std::string kernel_key(const std::string& prefix, const std::string& name, const std::string& text);
/// Returns the programs of kernels that build_programs has built before, by their names and keys: those in use, and those in
/// `store`. Returns none if one is missing.
std::vector<std::shared_ptr<Program>> find_programs(Device& device, const std::vector<std::string>& names,
                                                    const std::vector<std::string>& keys, const BinaryStore& store);
/// Drops the programs in memory that are not in use. The next build looks into the store again.
void forget_programs();

}  // namespace ocl::runtime
