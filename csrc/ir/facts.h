// csrc/ir/facts.h: the rows of ops.def and reductions.def, and the types that follow from them.
#pragma once

#include <string>
#include <vector>

#include "csrc/ir/graph.h"

namespace ocl::ir {

/// A row of ops.def; kLoad, kConstant, kIndex and kCast have rows here too, with an empty text.
struct OpFacts {
  const char* name;
  int arity;
  const char* dtype_rule;  // "same", "promoted", "bool", ...
  const char* cost;        // "cheap", "special", "slow"
  const char* facts;       // "commutative", "none"
  const char* text;        // OpenCL C with $0 $1 $2
};
const OpFacts& facts(OpCode code);
OpCode op_code(const std::string& name);  // throws InternalError

/// The types that an op of ops.def converts its operands to, and the type of its value; from the operands' dtypes by the row's
/// rule. Throws UnsupportedError if the op does not take them (bits of a float).
struct OpTypes {
  std::vector<DType> operands;
  DType value = DType::kF32;
};
OpTypes op_types(OpCode code, const std::vector<DType>& operands);
/// PyTorch's type promotion of two tensors of at least one dimension: bool < integers < floating point; u8 with i8 gives i16,
/// f16 with bf16 gives f32.
DType promote(DType a, DType b);

/// A row of reductions.def, its lists decomposed.
struct ReductionFacts {
  std::string name;
  int inputs = 1;                                           // values that enter per element
  int accumulators = 1;                                     // values carried
  int results = 1;                                          // values that leave
  std::vector<std::string> types, identities, step, merge;  // per accumulator
  std::vector<int> result_accumulator;                      // per result: which accumulator
};
const ReductionFacts& facts(ReductionCode code);
ReductionCode reduction_code(const std::string& name);  // throws InternalError
/// Type of an accumulator, given the dtype of input 0.
DType accumulator_dtype(ReductionCode code, int accumulator, DType input);

}  // namespace ocl::ir
