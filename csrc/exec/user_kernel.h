// csrc/exec/user_kernel.h: a kernel that the user wrote, built for one device, and its launch.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "csrc/runtime/build/program.h"
#include "csrc/runtime/device/device.h"
#include "csrc/runtime/memory/allocator.h"
#include "csrc/runtime/record/history.h"

namespace ocl::exec {

struct LocalMemory {
  size_t bytes = 0;
};
/// An argument of a launch: a pointer, which becomes two arguments of the kernel (buffer and offset in bytes), the bytes of a
/// number, or local memory.
using UserArgument = std::variant<runtime::Location, std::string, LocalMemory>;

/// A user's kernel, built for one device. Thread-safe: a kernel's arguments are state, so one launch at a time sets them.
class UserKernel {
 public:
  /// Builds the kernel or finds its binary. Throws kBuild with the compiler's log.
  UserKernel(runtime::Device& device, const runtime::KernelText& text, const runtime::BinaryStore& store,
             const std::string& failed_dir);
  runtime::Device& device() const { return device_; }
  /// Returns the largest number of work-items in a work-group of this kernel on the device.
  size_t most_items() const { return most_items_; }
  /// Returns the local size that the source requires (reqd_work_group_size); zeros if it requires none.
  std::array<size_t, 3> required_local() const { return required_local_; }
  /// Enqueues the kernel. A `local` of zeros leaves the choice to the runtime. `op` names the op in records.
  void launch(int stream, const std::vector<UserArgument>& arguments, const std::array<size_t, 3>& global,
              const std::array<size_t, 3>& local, const std::string& op);

 private:
  runtime::LaunchInfoPtr describe(const std::array<size_t, 3>& global, const std::array<size_t, 3>& local,
                                  const std::string& op, size_t bytes) const;
  runtime::Device& device_;
  std::string name_, origin_;
  std::shared_ptr<runtime::Program> program_;
  runtime::KernelHandle kernel_;
  size_t most_items_ = 0;
  std::array<size_t, 3> required_local_{0, 0, 0};
  int name_id_ = 0;
  std::mutex mutex_;
};

}  // namespace ocl::exec
