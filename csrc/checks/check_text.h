// csrc/checks/check_text.h: the program of a check case, and whether results are right.
#pragma once

#include <string>
#include <vector>

#include "csrc/schedule/families/case.h"

namespace ocl::checks {

using schedule::CheckCase;

/// Returns the text of a program with the kernel checked_kernel.
std::string text_of(const CheckCase& check);
/// True if `results` from index `from` on are the expected ones, within `tolerance` relative to the absolute sums of
/// the terms.
bool is_right(const CheckCase& check, const std::vector<float>& results, size_t from, double tolerance);

}  // namespace ocl::checks
