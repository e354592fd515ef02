// csrc/codegen/expr.h: how types, constants and index expressions are spelled in OpenCL C.
#pragma once

#include <functional>
#include <string>

#include "csrc/codegen/type.h"

namespace ocl::codegen {

/// Returns the type in which bodies compute: "float16", "long", "int4".
std::string type_name(Type type);
/// Returns the type of an element in memory: "float", "uchar" for bool, "half", "ushort" for bf16.
const char* storage_name(ir::DType dtype);
/// Returns the suffix of a function of kernels/base/ops.cl for this type: "f32x16".
std::string type_suffix(Type type);
/// Returns the bytes of one lane of a value: 4 for bool, f16 and bf16.
int lane_bytes(ir::DType dtype);

/// Returns the text of an exact scalar constant: hexadecimal floating point, NAN, INFINITY, integers with suffixes. A
/// bool is 0 or 1.
std::string literal(const Literal& literal);
/// Returns the least or the greatest value of the type. For floating point it is infinite.
std::string extreme(ir::DType dtype, bool highest);

/// Returns the suffix that selects a lane: ".sa" for lane 10.
std::string lane_suffix(int lane);

/// How the symbols of an index expression are spelled, and whether it is computed in long or int.
struct IndexSpelling {
  bool wide = false;
  bool mixed = false;  // True if some symbols are long and others int.
  std::function<std::string(ir::Symbol)> name;
};
/// Returns the text of an index expression. Division and remainder use C's operators if the operands are proven
/// nonnegative; otherwise they call op_index_floordiv and op_index_mod.
std::string index_text(const ir::IndexExpr& e, const ir::Ranges& ranges, const IndexSpelling& spelling);

}  // namespace ocl::codegen
