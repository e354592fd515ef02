// csrc/runtime/build/large_groups.h: kernels whose work-groups the driver does not grant, in one call of build_programs.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "csrc/runtime/opencl/cl.h"
#include "csrc/runtime/opencl/kernel_text.h"

namespace ocl::runtime {

class Device;

/// True if the driver runs more work-items than CL_KERNEL_WORK_GROUP_SIZE says. Then the number says nothing about which
/// work-groups run: NVIDIA's driver says 256 for every kernel. Found out once for each device, by a small kernel.
bool understates(const Device& device);

/// A driver may grant a kernel fewer work-items than the device has, because it needs many registers. The number is known once
/// the kernel is built (CL_KERNEL_WORK_GROUP_SIZE). Some drivers refuse to build such a kernel at all. The kernel's entry in
/// the store then has the number.
class LargeGroups {
 public:
  LargeGroups(const Device& device, const std::vector<KernelText>& texts, const std::vector<std::string>& keys,
              const BinaryStore& store)
      : device_(device), texts_(texts), keys_(keys), store_(store) {}

  /// True if the entry of kernel `index` in the store says that the driver grants it too few work-items. Then it is refused.
  bool is_refused(size_t index, const std::string& entry);
  /// True if the driver grants the built kernel too few work-items. Then it is refused.
  bool refuses(size_t index, cl_program program);
  /// Finds out whether kernel `index` does not build because of its work-group: builds it without a required size. If so, it is
  /// refused.
  bool explains_failure(size_t index);

  bool contains(size_t index) const { return granted_.contains(index); }
  /// Throws GroupRefused if kernels are refused.
  void raise() const;

 private:
  size_t items(size_t index) const;
  /// The work-items that the driver grants the kernel, if these are too few; otherwise 0.
  size_t too_few(size_t index, cl_program program) const;
  bool refuse(size_t index, size_t granted);
  const Device& device_;
  const std::vector<KernelText>& texts_;
  const std::vector<std::string>& keys_;
  const BinaryStore& store_;
  std::map<size_t, size_t> granted_;  // Refused kernel -> the number of work-items that it may have.
};

}  // namespace ocl::runtime
