// csrc/ir/facts.h: the rows of ops.def and reductions.def, and the dtypes that follow from them.
#pragma once

#include <string>
#include <vector>

#include "csrc/ir/graph.h"

namespace ocl::ir {

/// A row of ops.def. kLoad, kConstant, kIndex and kCast have rows with an empty text.
struct OpFacts {
  const char* name;
  int arity;
  const char* dtype_rule;  // "same", "promoted", "bool", ...
  const char* cost;        // "cheap", "special", "slow"
  const char* facts;       // "commutative", "idempotent", "none", ...
  const char* text;        // OpenCL C in which $0, $1 and $2 stand for the operands.
};
const OpFacts& facts(OpCode code);
OpCode op_code(const std::string& name);  // InternalError for an unknown name.

/// The dtypes to which an op converts its operands, and the dtype of its value. UnsupportedError if the op does not
/// take operands of these dtypes, such as a bitwise op on floats.
struct OpTypes {
  std::vector<DType> operands;
  DType value = DType::kF32;
};
OpTypes op_types(OpCode code, const std::vector<DType>& operands);

/// A row of reductions.def. Its lists are split into entries.
struct ReductionFacts {
  std::string name;
  int inputs = 1;                                           // Values per element that the reduction takes.
  int accumulators = 1;                                     // Values that the reduction carries from element to element.
  int results = 1;                                          // Values that the reduction gives at the end.
  std::vector<std::string> types, identities, step, merge;  // One entry per accumulator.
  std::vector<int> result_accumulator;                      // For each result, the number of its accumulator.
};
const ReductionFacts& facts(ReductionCode code);
ReductionCode reduction_code(const std::string& name);  // InternalError for an unknown name.
/// Returns the dtype of an accumulator, if input 0 has dtype `input`.
DType accumulator_dtype(ReductionCode code, int accumulator, DType input);

}  // namespace ocl::ir
