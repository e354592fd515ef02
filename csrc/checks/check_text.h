// csrc/checks/check_text.h: the program of a check case.
#pragma once

#include <string>

#include "csrc/schedule/families/case.h"

namespace ocl::checks {

using schedule::CheckCase;

/// Returns the text of a program with the kernel checked_kernel.
std::string text_of(const CheckCase& check);

}  // namespace ocl::checks
