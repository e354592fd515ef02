// csrc/support/build_id.h: which build of the library this is.
#pragma once

#include <string>

namespace ocl {

/// The linker's hash of the library or program that this function is part of, in hexadecimal digits; "" if it was linked
/// without.
std::string build_id();

}  // namespace ocl
