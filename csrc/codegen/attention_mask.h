// csrc/codegen/attention_mask.h: prints the functions with which an attention kernel computes its mask.
#pragma once

#include <vector>

#include "csrc/codegen/kernel.h"

namespace ocl::codegen {

/// The body of a function that returns what is added to a score, or to `width` scores of neighbouring columns.
struct MaskFunction {
  int width = 1;
  Writer body;
};

/// Returns the functions of a group's attention: none, unless its node has a body. CPUs get one for vectors as well. What the
/// bodies read becomes parameters of the kernel.
std::vector<MaskFunction> mask_functions(Kernel& kernel, const schedule::Group& group);
/// Prints a function and the macro that calls it: MASK_VALUE(batch, head, query, key), or MASK_LANES.
void print_mask(Writer& functions, const Kernel& kernel, const MaskFunction& mask);

}  // namespace ocl::codegen
