// csrc/runtime/vendor_library.h: platforms of OpenCL runtimes that are not in the system's list. A runtime gives its platforms
// through cl_khr_icd's clIcdGetPlatformIDsKHR and its handles carry their own dispatch table, so they work with every loader,
// even one that was initialised before; no environment variable is touched.
#pragma once

#include <string>
#include <vector>

#include "csrc/runtime/cl.h"

namespace ocl::runtime {

/// `path` is a library, an .icd file, or a folder of .icd files. What fails is a line in `problems`, never an error.
std::vector<cl_platform_id> vendor_platforms(const std::string& path, std::vector<std::string>& problems);

}  // namespace ocl::runtime
