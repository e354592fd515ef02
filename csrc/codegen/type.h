// csrc/codegen/type.h: types of values and constants in a kernel.
#pragma once

#include "csrc/codegen/names.h"

namespace ocl::codegen {

/// Type of a value: `width` lanes of the type in which bodies compute for `dtype`. f16 and bf16 are float. bool is int:
/// 0/1, or a mask.
struct Type {
  ir::DType dtype = ir::DType::kF32;
  int width = 1;
};

struct Literal {
  ir::Scalar value;
  ir::DType dtype = ir::DType::kF32;
};

}  // namespace ocl::codegen
