// csrc/runtime/opencl/loader.h: opens the OpenCL loader when devices are listed, so that a program starts on a machine without
// one.
#pragma once

#include <string>
#include <vector>

namespace ocl::runtime {

/// Takes OpenCL's functions from `library`, a loader or a driver, and from nothing else. If it is "": from the process itself
/// if it has them (a preloaded runtime), else from a library of os::kFileNames, else from a loader in the folder of one of
/// `vendor_libraries` (paths of files; pip puts one there). Once it has succeeded, further calls do nothing. Returns what was
/// tried and why there is no loader, in one line; "" if there is one. Not thread-safe: the list of devices calls it under its
/// lock, before any other OpenCL function can be called.
std::string open_loader(const std::string& library, const std::vector<std::string>& vendor_libraries);

}  // namespace ocl::runtime
