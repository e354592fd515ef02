// csrc/ir/append.h: functions that append ops to the body of a loop nest, and return their numbers.
#pragma once

#include <utility>
#include <vector>

#include "csrc/ir/graph.h"

namespace ocl::ir {

inline int push(Body& body, Op op) {
  body.ops.push_back(std::move(op));
  return static_cast<int>(body.ops.size()) - 1;
}
inline int push(Body& body, OpCode code, DType dtype, std::vector<int> args = {}) {
  return push(body, {code, dtype, std::move(args), {}, kNone, {}});
}
inline int push_load(Body& body, DType dtype, BufferId buffer, std::vector<IndexExpr> coords, std::vector<int> mask = {}) {
  return push(body, {OpCode::kLoad, dtype, std::move(mask), {}, buffer, std::move(coords)});
}
inline int push_index(Body& body, const IndexExpr& e, DType dtype = DType::kI64) {
  return push(body, {OpCode::kIndex, dtype, {}, {}, kNone, {e}});
}
inline int push_constant(Body& body, double value) {
  return push(body, {OpCode::kConstant, DType::kF32, {}, {true, value, 0}, kNone, {}});
}

}  // namespace ocl::ir
