// csrc/support/build_id.h: identifies the build of the library.
#pragma once

#include <string>

namespace ocl {

/// The linker's hash of the library or program that contains this function, in hexadecimal digits. "" if it was linked
/// without one.
std::string build_id();

}  // namespace ocl
