// csrc/kernels/profile.h: device profiles, the limits of GPUs that any device can take on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/kernels/caps.h"

namespace ocl {

/// A row of profiles.def, which explains the columns. Sizes are in bytes.
struct Profile {
  const char *name, *device;
  int units, max_group_size, least_granted;
  int64_t local_bytes;
  bool local_is_global;
  int subgroup_sizes;  // One bit for each size: 8 | 16 | 32.
  bool fp64, fp16;
  int64_t global_bytes, max_alloc_bytes;
  int max_kernel_arg_bytes, address_bits;
  bool unified, exact_division;
  const char* source;
};

const std::vector<Profile>& profiles();
/// Returns the profile of this name. ConfigError that lists the names if there is none.
const Profile& profile_named(const std::string& name);
/// Returns what a device with these caps can do under the profile: never more than before. Kernels are those for GPUs.
Caps limited(const Caps& caps, const Profile& profile);

}  // namespace ocl
