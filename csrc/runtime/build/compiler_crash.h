// csrc/runtime/build/compiler_crash.h: kernels on which the driver's compiler ends, with its process, in one call of
// build_programs.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "csrc/runtime/opencl/kernel_text.h"

namespace ocl::runtime {

class Device;

/// A kernel on which the compiler has ended once is built again without optimisation. If the compiler ends again, the kernel's
/// entry in the store says how, so that this driver is not given the kernel again.
class CompilerCrashes {
 public:
  CompilerCrashes(const Device& device, const std::vector<KernelText>& texts, const std::vector<std::string>& keys,
                  const BinaryStore& store)
      : device_(device), texts_(texts), keys_(keys), store_(store) {}

  /// True if the entry of kernel `index` in the store says that the compiler ended on it. Then the kernel has crashed.
  bool is_crash(size_t index, const std::string& entry);
  /// The compiler ended on this kernel for the first time. Throws kBuild if the system killed it, which is not the kernel's
  /// fault.
  void first(size_t index, const std::string& how, const std::string& failed_dir);
  /// Returns the kernels of first(), which are no longer pending afterwards.
  std::map<size_t, std::string> take_first() { return std::exchange(first_, {}); }
  /// The compiler ended on the kernel without optimisation too (`again`), or could not be asked ("").
  void second(size_t index, const std::string& how, const std::string& again);
  /// Warns that the kernel was built without optimisation.
  void warn(size_t index, const std::string& how) const;

  bool contains(size_t index) const { return crashed_.contains(index); }
  /// Throws CompilerCrash if there are crashed kernels.
  void raise(const std::string& failed_dir) const;

 private:
  struct Crash {
    std::string how;
    bool remembered = false;  // The store has it.
  };
  const Device& device_;
  const std::vector<KernelText>& texts_;
  const std::vector<std::string>& keys_;
  const BinaryStore& store_;
  std::map<size_t, std::string> first_;
  std::map<size_t, Crash> crashed_;
};

}  // namespace ocl::runtime
