// csrc/codegen/expr.h: how types, constants and index expressions are spelled in OpenCL C.
#pragma once

#include <functional>
#include <string>

#include "csrc/codegen/writer.h"
#include "csrc/ir/graph.h"

namespace ocl::codegen {

/// "float16", "long", "int4": what bodies compute in.
std::string type_name(Type type);
/// Element type in memory: "float", "uchar" for bool, "half", "ushort" for bf16.
const char* storage_name(ir::DType dtype);
/// "f32x16": suffix of the functions of kernels/base/ops.cl for this type.
std::string type_suffix(Type type);
/// Bytes of one lane of a value; 4 for bool, f16 and bf16.
int lane_bytes(ir::DType dtype);

/// Exact: hexadecimal floating point, NAN, INFINITY, suffixes for integers. A scalar; bool is 0 or 1.
std::string literal(const Literal& literal);
/// Least or greatest value of the type, infinite for floating point.
std::string extreme(ir::DType dtype, bool highest);

/// ".sa" for lane 10.
std::string lane_suffix(int lane);

/// How an index expression's symbols read, and whether it is computed in long (otherwise int).
struct IndexSpelling {
  bool wide = false;
  bool mixed = false;  // some symbols are long and others int
  std::function<std::string(ir::Symbol)> name;
};
/// Division and modulo become C's where the operands are proven nonnegative, otherwise calls of op_index_floordiv and
/// op_index_mod.
std::string index_text(const ir::IndexExpr& e, const ir::Ranges& ranges, const IndexSpelling& spelling);

}  // namespace ocl::codegen
