// csrc/codegen/op_library.h: the functions of kernels/base/ops.cl that a text calls, with one instance per type.
//
// kernels/base/ops.cl defines each function once, for a type T. A call names the instance: op_sigmoid_f32x16 is op_sigmoid with
// T = float16. Words with a special meaning:
//   T  the type          N  integers of T's size (the result of comparing two T)        M  int lanes (masks and bools)
//   U  unsigned N        REAL(x)  the constant x in T                                   convert_T, as_N, ...  the builtins for
//                                                                                       these types
//   W  unsigned type in which T wraps around: U, or uint for a scalar smaller than int
//   Other type names become vectors of the same width (float -> float16), except in `for (int ...)`.
//   op_<name> inside a function is the instance for the same T. opi_<name> is the version for integer types; op_<name> is the
//   version for floating point.
#pragma once

#include <string>

#include "csrc/codegen/dialect.h"
#include "csrc/ir/dtype.h"

namespace ocl::codegen {

/// Returns the definitions of all library functions that `text` calls, "" if there are none. A function comes after
/// those that it calls; otherwise they are in order of first use. The dialect selects the replacements of own_function(), and
/// whether bf16 is rounded by an instruction.
std::string called_functions(const std::string& text, const Dialect& dialect);

/// Returns the function of kernels/base/maths.cl that replaces a builtin ("exp") or a function of base/ops.cl
/// ("op_gelu_erf"), without the type suffix. Returns `name` if there is no replacement for the type. On GPUs, only
/// builtins that branch are replaced, because branches keep an item from working on several elements at once.
std::string own_function(const std::string& name, ir::DType dtype, bool is_cpu);
/// Returns the text of an op's row, such as "op_gelu_erf($0)", with a shorter function if its result is only used rounded to
/// the 16-bit type `rounded`, and the device's kind has such a function.
std::string shortened(const std::string& row, ir::DType rounded, const Dialect& dialect);

}  // namespace ocl::codegen
