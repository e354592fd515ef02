// csrc/runtime/build/large_groups.cpp: see large_groups.h.
#include "csrc/runtime/build/large_groups.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <mutex>

#include "csrc/runtime/device/device.h"
#include "csrc/runtime/opencl/compile.h"
#include "csrc/runtime/opencl/profile_limits.h"
#include "csrc/runtime/probes/probe_program.h"
#include "csrc/support/group_refused.h"

namespace ocl::runtime {
namespace {

// An entry that begins with this character has the number of work-items that the driver grants.
constexpr char kGranted[] = "[";
// Makes a required size a hint. The text keeps the numbers of its lines.
constexpr char kAnySize[] = "#define reqd_work_group_size(x, y, z) work_group_size_hint(x, y, z)\n#line 1\n";

/// Returns CL_KERNEL_WORK_GROUP_SIZE of a kernel; `otherwise` if the driver does not say.
size_t told_items(const Device& device, cl_program program, const std::string& name, size_t otherwise) {
  cl_int status = CL_SUCCESS;
  const KernelHandle kernel(clCreateKernel(program, name.c_str(), &status));
  size_t asked = 0;
  if (status == CL_SUCCESS && clGetKernelWorkGroupInfo(kernel.get(), device.id(), CL_KERNEL_WORK_GROUP_SIZE, sizeof(asked),
                                                       &asked, nullptr) == CL_SUCCESS)
    return asked;
  return otherwise;
}

/// Builds a small kernel that requires the largest work-group, and runs it. Returns true if it gives the right values although
/// the driver grants it fewer work-items.
bool runs_more_than_told(const Device& device) {
  const auto items = static_cast<size_t>(device.caps().max_group_size);
  const std::string n = std::to_string(items);
  const std::string text = "__kernel __attribute__((reqd_work_group_size(" + n + ", 1, 1))) void k(__global float* out) {\n" +
                           "  __local float s[" + n + "];\n  const int i = get_local_id(0);\n  s[i] = i;\n" +
                           "  barrier(CLK_LOCAL_MEM_FENCE);\n  out[i] = s[" + n + " - 1 - i];\n}\n";
  const ProgramHandle program = build_probe_program(device.context(), device.id(), text.c_str(), "");
  if (program.get() == nullptr || told_items(device, program.get(), "k", items) >= items) return false;
  const std::vector<float> values = run_probe(device.context(), device.id(), program.get(), items, items);
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i] != static_cast<float>(items - 1 - i)) return false;
  return !values.empty();
}

/// Returns the work-items that the driver grants the kernel; `otherwise` if it does not say.
size_t items_of(const Device& device, cl_program program, const KernelText& text, size_t otherwise) {
  const size_t most = told_items(device, program, text.name, otherwise);
  return device.profile() ? std::min(most, granted_items(*device.profile(), text.text)) : most;
}

}  // namespace

bool understates(const Device& device) {
  if (device.profile()) return false;
  static std::mutex mutex;
  static std::map<cl_device_id, bool> known;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = known.try_emplace(device.id(), false);
  if (is_new) found->second = runs_more_than_told(device);
  return found->second;
}

size_t LargeGroups::items(size_t index) const {
  const auto& local = texts_[index].local;
  return local[0] * local[1] * local[2];
}

bool LargeGroups::is_refused(size_t index, const std::string& entry) {
  if (!entry.starts_with(kGranted)) return false;
  granted_[index] = static_cast<size_t>(std::strtoul(entry.c_str() + 1, nullptr, 10));
  return true;
}

bool LargeGroups::refuses(size_t index, cl_program program) {
  if (items(index) <= 1) return false;
  // Such a kernel hands registers from one part of its work-group to another. The driver's number counts them before that:
  // NVIDIA's says 256 for kernels that run with 512 work-items. A check launches each of them before it is used.
  if (texts_[index].text.find("setmaxnreg") != std::string::npos) return false;
  const size_t granted = too_few(index, program);
  if (granted > 0 && understates(device_)) return false;
  return refuse(index, granted);
}

size_t LargeGroups::too_few(size_t index, cl_program program) const {
  const size_t wanted = items(index), granted = items_of(device_, program, texts_[index], wanted);
  // Some drivers round the number down to a power of two: NVIDIA's says 256 for kernels that run with 384 work-items.
  return granted < std::bit_floor(wanted) ? granted : 0;
}

bool LargeGroups::refuse(size_t index, size_t granted) {
  if (granted == 0) return false;
  granted_[index] = granted;
  if (store_.store) store_.store(keys_[index], kGranted + std::to_string(granted));
  return true;
}

bool LargeGroups::explains_failure(size_t index) {
  if (items(index) <= 1) return false;
  std::string text = texts_[index].text;
  // Options for the compiler stay in the first line.
  text.insert(text.starts_with(kOptionsMarker) ? text.find('\n') + 1 : 0, kAnySize);
  const Built built = compile(device_.context(), device_.id(), device_.build_options(), text, false);
  return built.status == CL_SUCCESS && refuse(index, too_few(index, built.handle.get()));
}

void LargeGroups::raise() const {
  if (granted_.empty()) return;
  std::map<size_t, size_t> all;  // All texts of the refused kernels: equal texts have equal keys.
  for (const auto& [index, granted] : granted_)
    for (size_t i = 0; i < keys_.size(); ++i)
      if (keys_[i] == keys_[index]) all[i] = granted;
  const auto& [index, granted] = *granted_.begin();
  const KernelText& text = texts_[index];
  throw GroupRefused("kernel " + text.name + " has work-groups of " + std::to_string(items(index)) + " work-items, but " +
                         device_.describe() + " grants it " + std::to_string(granted) +
                         (text.where.empty() ? "" : "\n  where: " + text.where),
                     std::move(all));
}

}  // namespace ocl::runtime
