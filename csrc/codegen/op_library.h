// csrc/codegen/op_library.h: the functions of kernels/base/ops.cl that a text calls, written out for the types it calls them
// with.
//
// kernels/base/ops.cl states each function once, over T. A call names the instance: op_sigmoid_f32x16 is op_sigmoid with T =
// float16. The rules:
//   T  the type          N  integers of T's size (what a comparison of two T gives)     M  int lanes (masks and bools)
//   U  unsigned N        REAL(x)  the constant x in T                                   convert_T, as_N, ...  the builtins for
//                                                                                       these types
//   Other type names become vectors of the same width (float -> float16), except in `for (int ...)`.
//   op_<name> inside a function is the instance for the same T. opi_<name> is for integer types, op_<name> for floating point.
#pragma once

#include <string>

#include "csrc/ir/dtype.h"

namespace ocl::codegen {

/// Definitions of all library functions that `text` calls, callees first, in order of first use; empty if there are none.
/// `is_cpu` selects own_function() for their bodies.
std::string called_functions(const std::string& text, bool is_cpu);

/// The function of kernels/base/maths.cl that stands for a builtin ("exp") or a function of base/ops.cl ("op_gelu_erf") without
/// the suffix of its instance; `name` itself if there is none for the type, and on GPUs if the builtin does not branch:
/// branches keep an item from working on several elements at once.
std::string own_function(const std::string& name, ir::DType dtype, bool is_cpu);

}  // namespace ocl::codegen
