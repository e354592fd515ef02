// csrc/runtime/opencl/profile_limits.cpp: see profile_limits.h.
#include "csrc/runtime/opencl/profile_limits.h"

#include <algorithm>
#include <cctype>

#include "csrc/runtime/opencl/compile.h"
#include "csrc/support/hash.h"

namespace ocl::runtime {
namespace {

// The compiler's log contains this word if a kernel uses double.
constexpr char kNoDouble[] = "the_profile_has_no_fp64";
// Beginnings of functions that need an extension or OpenCL 2.0: atomics of 64 bits or with an order, and subgroups.
constexpr const char* kOptional[] = {"atom_", "atomic_fetch_", "atomic_load", "atomic_store", "sub_group_", "intel_sub_group_"};

[[noreturn]] void refuse(const DeviceInfo& device, ErrorKind kind, const std::string& kernel, const std::string& asks,
                         const std::string& limit) {
  fail(kind, "kernel " + kernel + " asks for " + asks + ", but the device profile '" + device.profile->name + "' has " + limit +
                 "\n  where: " + device.describe());
}

/// Returns the position of a word that begins with `beginning`, or npos.
size_t find_word(const std::string& text, const std::string& beginning) {
  for (size_t at = text.find(beginning); at != std::string::npos; at = text.find(beginning, at + 1)) {
    const auto before = at == 0 ? ' ' : text[at - 1];
    if (!std::isalnum(static_cast<unsigned char>(before)) && before != '_') return at;
  }
  return std::string::npos;
}

KernelText restricted(const Profile& profile, const KernelText& text) {
  for (const char* beginning : kOptional)
    if (const size_t at = find_word(text.text, beginning); at != std::string::npos) {
      const size_t end = std::find_if(text.text.begin() + static_cast<std::ptrdiff_t>(at), text.text.end(),
                                      [](unsigned char c) { return !std::isalnum(c) && c != '_'; }) -
                         text.text.begin();
      fail(ErrorKind::kBuild, "kernel " + text.name + " calls " + text.text.substr(at, end - at) +
                                  ", but the device profile '" + profile.name + "' has no functions beyond OpenCL 1.2" +
                                  (text.where.empty() ? "" : "\n  where: " + text.where));
    }
  std::string lines;
  if (!profile.fp64) {
    lines += "#undef cl_khr_fp64\n#undef __opencl_c_fp64\n#define double " + std::string(kNoDouble) + "\n";
    for (const char* width : {"2", "3", "4", "8", "16"})
      lines += std::string("#define double") + width + " " + kNoDouble + width + "\n";
  }
  if (!profile.fp16) lines += "#pragma OPENCL EXTENSION cl_khr_fp16 : disable\n#undef cl_khr_fp16\n";
  KernelText result = text;
  if (!lines.empty()) lines += "#line 1\n";  // Messages name the lines of the text without these.
  // Options for the compiler stay in the first line.
  const size_t at = text.text.starts_with(kOptionsMarker) ? text.text.find('\n') + 1 : 0;
  result.text.insert(at, lines);
  return result;
}

}  // namespace

std::vector<KernelText> restricted(const Profile& profile, const std::vector<KernelText>& texts) {
  std::vector<KernelText> result;
  for (const KernelText& text : texts) result.push_back(restricted(profile, text));
  return result;
}

std::string lacking(const Profile& profile, const std::string& log) {
  const std::string begin = "\n  limit: the device profile '" + std::string(profile.name) + "' has no ";
  if (!profile.fp64 && log.find(kNoDouble) != std::string::npos) return begin + "float64, and the kernel computes in double";
  if (!profile.fp16 && find_word(log, "half") != std::string::npos) return begin + "fp16, and the kernel computes with half";
  return "";
}

size_t granted_items(const Profile& profile, const std::string& text) {
  const auto registers = hash_hex(text).back() % 4;
  const auto all = static_cast<size_t>(profile.max_group_size), least = static_cast<size_t>(profile.least_granted);
  return registers == 3 ? all : std::min(all, least << registers);
}

void check_kernel(const DeviceInfo& device, cl_kernel kernel, const std::string& name, ErrorKind blame) {
  cl_ulong local = 0;
  OCL_CHECK(clGetKernelWorkGroupInfo(kernel, device.id, CL_KERNEL_LOCAL_MEM_SIZE, sizeof(local), &local, nullptr), name);
  if (static_cast<int64_t>(local) > device.caps.local_bytes)
    refuse(device, blame, name, std::to_string(local) + " bytes of local memory", std::to_string(device.caps.local_bytes));
  std::array<size_t, 3> required{};
  OCL_CHECK(clGetKernelWorkGroupInfo(kernel, device.id, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof(required), required.data(),
                                     nullptr),
            name);
  const size_t items = required[0] * required[1] * required[2];
  if (items > static_cast<size_t>(device.caps.max_group_size))
    refuse(device, blame, name, "work-groups of " + std::to_string(items) + " work-items",
           "at most " + std::to_string(device.caps.max_group_size));
}

void check_launch(const DeviceInfo& device, const std::string& kernel, int dims, const std::array<size_t, 3>& local) {
  size_t items = 1;
  for (int i = 0; i < dims; ++i) items *= local[static_cast<size_t>(i)];
  if (items > static_cast<size_t>(device.caps.max_group_size))
    refuse(device, ErrorKind::kInternal, kernel, "work-groups of " + std::to_string(items) + " work-items",
           "at most " + std::to_string(device.caps.max_group_size));
}

}  // namespace ocl::runtime
