// csrc/support/build_id.h: identifies the build of the library.
#pragma once

#include <string>

namespace ocl {

/// Returns the linker's hash of the library or program that contains this function, as hexadecimal digits. Returns "" if it was
/// linked without a hash.
std::string build_id();

}  // namespace ocl
