// csrc/kernels/profile.cpp: builds the rows of profiles.def, finds them by name, and applies them.
#include "csrc/kernels/profile.h"

#include <algorithm>

#include "csrc/support/error.h"

namespace ocl {
namespace {

constexpr bool yes = true, no = false;
constexpr bool on_chip = false, global = true;
constexpr bool exact = true, near = false;
constexpr int64_t kKiB = 1 << 10, kMiB = 1 << 20;

}  // namespace

const std::vector<Profile>& profiles() {
  static const auto* rows = new std::vector<Profile>{
#define OCL_PROFILE(name, device, units, group, granted, local, local_in, subgroups, fp64, fp16, memory, allocation, \
                    arguments, address, unified, division, source)                                                   \
  {name,      device,    units,   group,    granted,         (local) * kKiB,                                         \
   local_in,  subgroups, fp64,    fp16,     (memory) * kMiB, (allocation) * kMiB,                                    \
   arguments, address,   unified, division, source},
#include "csrc/kernels/profiles.def"
#undef OCL_PROFILE
  };
  return *rows;
}

const Profile& profile_named(const std::string& name) {
  std::string names;
  for (const Profile& profile : profiles()) {
    if (name == profile.name) return profile;
    names += (names.empty() ? "" : ", ") + std::string(profile.name);
  }
  fail(ErrorKind::kConfig, "'" + name + "' is no device profile; there are " + names);
}

Caps limited(const Caps& caps, const Profile& profile) {
  Caps result = caps;
  result.is_cpu = false;
  result.vector_floats = 4;
  result.prefetch = false;
  result.kernels = portable_kernels();
  result.units = profile.units;
  result.local_bytes = std::min(caps.local_bytes, profile.local_bytes);
  result.max_group_size = std::min(caps.max_group_size, profile.max_group_size);
  result.limit_addresses(std::min(caps.address_bits, profile.address_bits));
  result.local_is_global = profile.local_is_global;
  result.global_bytes = std::min(result.global_bytes, profile.global_bytes);
  result.max_alloc_bytes = std::min(caps.max_alloc_bytes, profile.max_alloc_bytes);
  result.max_kernel_arg_bytes = std::min(caps.max_kernel_arg_bytes, profile.max_kernel_arg_bytes);
  result.unified = caps.unified && profile.unified;
  result.fp64 = caps.fp64 && profile.fp64;
  return result;
}

}  // namespace ocl
