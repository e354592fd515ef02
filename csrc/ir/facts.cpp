// csrc/ir/facts.cpp: ops.def and reductions.def as tables, and the dtype rules of their rows.
#include "csrc/ir/facts.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "csrc/support/error.h"

namespace ocl::ir {

namespace {

// The words of the column `error`.
namespace error {
constexpr OpError exact{}, in_type{OpError::Kind::k_in_type}, rounded{OpError::Kind::k_rounded, 1},
    recurrence{OpError::Kind::k_recurrence, 160};
constexpr OpError within(double relative, double absolute = 0, double of_operand = 0) {
  return {OpError::Kind::k_within, relative, absolute, of_operand};
}
}  // namespace error

constexpr OpFacts kOps[] = {
#define OCL_OP(name, arity, rule, cost, fact, bound, text, reference) \
  {#name, arity, TypeRule::k_##rule, Cost::k_##cost, OpFact::k_##fact, error::bound, text, reference},
    OCL_OP(load, 0, none, cheap, none, exact, "", "") OCL_OP(constant, 0, none, cheap, none, exact, "", "")
        OCL_OP(index, 0, none, cheap, none, exact, "", "") OCL_OP(cast, 1, none, cheap, none, exact, "", "")
#include "csrc/ir/ops.def"
#undef OCL_OP
};
static_assert(std::size(kOps) == static_cast<size_t>(OpCode::kCount));

/// Splits a column of reductions.def at ';' and strips blanks.
std::vector<std::string> entries(const std::string& column) {
  std::vector<std::string> result;
  for (size_t begin = 0; begin <= column.size();) {
    const size_t end = std::min(column.find(';', begin), column.size());
    const std::string entry = column.substr(begin, end - begin);
    const size_t first = entry.find_first_not_of(' '), last = entry.find_last_not_of(' ');
    result.push_back(first == std::string::npos ? "" : entry.substr(first, last - first + 1));
    begin = end + 1;
  }
  return result;
}

AccumulatorType accumulator_type(const std::string& name) {
  static const std::map<std::string, AccumulatorType> types{{"same", AccumulatorType::k_same},
                                                            {"wide", AccumulatorType::k_wide},
                                                            {"i64", AccumulatorType::k_i64},
                                                            {"bool", AccumulatorType::k_bool}};
  const auto found = types.find(name);
  OCL_ASSERT(found != types.end(), "unknown accumulator type in reductions.def: " + name);
  return found->second;
}

/// Fills the lists of a row from its columns: types, identities, step, merge, results, element, reference.
ReductionFacts reduction_row(ReductionFacts row, const std::array<const char*, 7>& columns) {
  for (const std::string& entry : entries(columns[0])) row.types.push_back(accumulator_type(entry));
  row.identities = entries(columns[1]);
  row.step = entries(columns[2]);
  row.merge = entries(columns[3]);
  for (const std::string& entry : entries(columns[4])) row.result_accumulator.push_back(std::stoi(entry));
  row.element = entries(columns[5]);
  row.reference = entries(columns[6]);
  for (const size_t length :
       {row.types.size(), row.identities.size(), row.step.size(), row.merge.size(), row.element.size(), row.reference.size()})
    OCL_ASSERT(static_cast<int>(length) == row.accumulators,
               row.name + ": a column of reductions.def needs an entry per accumulator");
  OCL_ASSERT(static_cast<int>(row.result_accumulator.size()) == row.results,
             row.name + ": `results` needs an entry per result");
  return row;
}

const std::vector<ReductionFacts>& reductions() {
  static const auto rows = [] {
    std::vector<ReductionFacts> made = {
#define OCL_REDUCTION(name, inputs, accumulators, results, kind, ...) \
  reduction_row({#name, inputs, accumulators, results, ReductionKind::k_##kind, {}, {}, {}, {}, {}, {}, {}, {}}, {__VA_ARGS__}),
#include "csrc/ir/reductions.def"
    };
#define OCL_TWO_PASSES(name, identity0, step0, merge0, centre, identity1, step1, merge1) \
  made[static_cast<size_t>(ReductionCode::k_##name)].two_passes = {                      \
      {{identity0, identity1}, {step0, step1}, {merge0, merge1}, centre}};
#include "csrc/ir/reductions.def"
    return made;
  }();
  return rows;
}

}  // namespace

const OpFacts& facts(OpCode code) {
  OCL_ASSERT(code < OpCode::kCount, "no such op");
  return kOps[static_cast<size_t>(code)];
}

OpCode op_code(const std::string& name) {
  static const auto codes = [] {
    std::unordered_map<std::string, OpCode> map;
    for (size_t i = 0; i < std::size(kOps); ++i) map.emplace(kOps[i].name, static_cast<OpCode>(i));
    return map;
  }();
  const auto it = codes.find(name);
  if (it == codes.end()) fail(ErrorKind::kInternal, "op '" + name + "' has no row in csrc/ir/ops.def");
  return it->second;
}

OpTypes op_types(OpCode code, const std::vector<DType>& operands) {
  const OpFacts& row = facts(code);
  OCL_ASSERT(static_cast<int>(operands.size()) == row.arity && code > OpCode::kCast,
             std::string(row.name) + ": wrong number of operands");
  const auto all = [&](DType operand, DType value) { return OpTypes{std::vector<DType>(operands.size(), operand), value}; };
  DType type = compute_type(operands.back());
  for (size_t i = row.rule == TypeRule::k_second ? 1 : 0; i < operands.size(); ++i)
    type = promote(type, compute_type(operands[i]));
  const DType counted = type == DType::kBool ? DType::kI32 : type;  // A sum of bools counts them.
  const DType real = is_floating(type) ? type : DType::kF32;
  switch (row.rule) {
    case TypeRule::k_logical:
      return all(DType::kBool, DType::kBool);
    case TypeRule::k_i64:
      return all(DType::kI64, DType::kI64);
    case TypeRule::k_f32_of_i64:
      return all(DType::kI64, DType::kF32);
    case TypeRule::k_second:
      return {{DType::kBool, type, type}, type};
    case TypeRule::k_ordered:
      if (!is_floating(type)) fail(ErrorKind::kUnsupported, std::string(row.name) + " takes floating point, not " + name(type));
      return all(type, type == DType::kF64 ? DType::kI64 : DType::kI32);
    case TypeRule::k_bits:
      if (is_floating(type))
        fail(ErrorKind::kUnsupported, std::string(row.name) + " takes integers and bool, not " + name(type));
      if (code == OpCode::k_shift_left || code == OpCode::k_shift_right) type = counted;
      return all(type, type);
    case TypeRule::k_floating:
      return all(real, real);
    case TypeRule::k_test:
      return all(real, DType::kBool);
    case TypeRule::k_bool:
      return all(counted, DType::kBool);
    default:
      if (row.fact == OpFact::k_rounding) return all(real, real);
      return all(counted, counted);
  }
}

const ReductionFacts& facts(ReductionCode code) {
  OCL_ASSERT(code < ReductionCode::kCount, "no such reduction");
  return reductions()[static_cast<size_t>(code)];
}

ReductionCode reduction_code(const std::string& name) {
  const auto& rows = reductions();
  const auto it = std::find_if(rows.begin(), rows.end(), [&](const ReductionFacts& row) { return row.name == name; });
  if (it == rows.end()) fail(ErrorKind::kInternal, "reduction '" + name + "' has no row in csrc/ir/reductions.def");
  return static_cast<ReductionCode>(it - rows.begin());
}

DType accumulator_dtype(ReductionCode code, int accumulator, DType input) {
  const DType compute = compute_type(input);
  switch (facts(code).types.at(static_cast<size_t>(accumulator))) {
    case AccumulatorType::k_bool:
      return DType::kBool;
    case AccumulatorType::k_i64:
      return DType::kI64;
    case AccumulatorType::k_wide:
      return is_floating(compute) ? compute : DType::kI64;
    default:
      return compute == DType::kBool ? DType::kI32 : compute;
  }
}

}  // namespace ocl::ir
