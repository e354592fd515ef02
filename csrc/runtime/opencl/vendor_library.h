// csrc/runtime/opencl/vendor_library.h: platforms of OpenCL runtimes that are not in the system's list. A runtime returns its
// platforms by clIcdGetPlatformIDsKHR of cl_khr_icd. Its handles carry their own dispatch table, so they work with
// every loader, even with one that was initialised before. No environment variable is changed.
#pragma once

#include <string>
#include <vector>

#include "csrc/runtime/opencl/cl.h"

namespace ocl::runtime {

/// Returns the platforms of a runtime. `path` is a library, an .icd file, or a folder of .icd files. A failure adds a line to
/// `problems`.
std::vector<cl_platform_id> vendor_platforms(const std::string& path, std::vector<std::string>& problems);

/// Adds a line to `problems` for each runtime in the system's list that the loader leaves out without a word: an empty .icd
/// file, a library that is missing or does not open, a driver without a device. `list`: os::icd_list().
void check_listed_runtimes(const std::string& list, std::vector<std::string>& problems);

}  // namespace ocl::runtime
