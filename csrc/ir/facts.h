// csrc/ir/facts.h: the rows of ops.def and reductions.def, and the dtypes that follow from them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "csrc/ir/graph.h"

namespace ocl::ir {

// The values of ops.def's columns, which its head explains. The rows without text have the rule `none`.
#define OCL_TYPE_RULES(X) \
  X(none) X(same) X(promoted) X(floating) X(bool) X(test) X(logical) X(ordered) X(bits) X(second) X(f32_of_i64) X(i64)
#define OCL_ENUMERATOR(name) k_##name,
enum class TypeRule : uint8_t { OCL_TYPE_RULES(OCL_ENUMERATOR) };
enum class Cost : uint8_t { k_cheap, k_special, k_slow };
enum class OpFact : uint8_t { k_none, k_commutative, k_idempotent, k_rounding, k_same_args };

/// The column `error`.
struct OpError {
  enum class Kind : uint8_t { k_exact, k_in_type, k_rounded, k_within, k_recurrence };
  Kind kind = Kind::k_exact;
  double relative = 0, absolute = 0, of_operand = 0;  // In units of one rounding.
};

/// A row of ops.def. kLoad, kConstant, kIndex and kCast have rows with an empty text.
struct OpFacts {
  const char* name;
  int arity;
  TypeRule rule;
  Cost cost;
  OpFact fact;
  OpError error;
  const char* text;       // OpenCL C in which $0, $1 and $2 stand for the operands.
  const char* reference;  // Python in which a, b and c stand for the operands.
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

/// The columns `types` and `kind` of reductions.def.
enum class AccumulatorType : uint8_t { k_same, k_wide, k_i64, k_bool };
#define OCL_REDUCTION_KINDS(X) X(sum) X(product) X(monotone) X(position) X(spread) X(exponentials)
enum class ReductionKind : uint8_t { OCL_REDUCTION_KINDS(OCL_ENUMERATOR) };

/// A row OCL_TWO_PASSES of reductions.def: identity, step and merge of each pass, and the centre between them.
struct TwoPasses {
  std::array<const char*, 2> identity, step, merge;
  const char* centre;
};

/// A row of reductions.def. Its lists are split into entries.
struct ReductionFacts {
  std::string name;
  int inputs = 1;        // Values per element that the reduction takes.
  int accumulators = 1;  // Values that the reduction carries from element to element.
  int results = 1;       // Values that the reduction gives at the end.
  ReductionKind kind = ReductionKind::k_sum;
  std::vector<AccumulatorType> types;                // One entry per accumulator.
  std::vector<std::string> identities, step, merge;  // One entry per accumulator.
  std::vector<int> result_accumulator;               // For each result, the number of its accumulator.
  std::vector<std::string> element, reference;       // One entry per accumulator.
  std::optional<TwoPasses> two_passes = std::nullopt;
};
const ReductionFacts& facts(ReductionCode code);
ReductionCode reduction_code(const std::string& name);  // InternalError for an unknown name.
/// Returns the dtype of an accumulator, if input 0 has dtype `input`.
DType accumulator_dtype(ReductionCode code, int accumulator, DType input);

}  // namespace ocl::ir
