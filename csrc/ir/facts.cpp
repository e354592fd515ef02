// csrc/ir/facts.cpp: ops.def and reductions.def as tables, and the dtype rules of their rows.
#include "csrc/ir/facts.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "csrc/support/error.h"

namespace ocl::ir {

namespace {

constexpr OpFacts kOps[] = {
    {"load", 0, "load", "cheap", "none", ""},
    {"constant", 0, "constant", "cheap", "none", ""},
    {"index", 0, "index", "cheap", "none", ""},
    {"cast", 1, "cast", "cheap", "none", ""},
#define OCL_OP(name, arity, rule, cost, facts, text) {#name, arity, #rule, #cost, #facts, text},
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

ReductionFacts reduction_row(const char* name, int inputs, int accumulators, int results, const char* types,
                             const char* identities, const char* step, const char* merge, const char* results_of) {
  ReductionFacts row{name,           inputs, accumulators, results, entries(types), entries(identities), entries(step),
                     entries(merge), {}};
  for (const std::string& entry : entries(results_of)) row.result_accumulator.push_back(std::stoi(entry));
  for (const auto* column : {&row.types, &row.identities, &row.step, &row.merge})
    OCL_ASSERT(static_cast<int>(column->size()) == accumulators,
               row.name + ": a column of reductions.def needs an entry per accumulator");
  OCL_ASSERT(static_cast<int>(row.result_accumulator.size()) == results, row.name + ": `results` needs an entry per result");
  return row;
}

const std::vector<ReductionFacts>& reductions() {
  static const std::vector<ReductionFacts> rows = {
#define OCL_REDUCTION(name, ...) reduction_row(#name, __VA_ARGS__),
#include "csrc/ir/reductions.def"
#undef OCL_REDUCTION
  };
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
  const std::string_view rule = row.dtype_rule;
  OCL_ASSERT(static_cast<int>(operands.size()) == row.arity && code > OpCode::kCast,
             std::string(row.name) + ": wrong number of operands");
  const auto all = [&](DType operand, DType value) { return OpTypes{std::vector<DType>(operands.size(), operand), value}; };
  if (rule == "logical") return all(DType::kBool, DType::kBool);
  if (rule == "ordered") {
    const DType type = compute_type(operands[0]);
    if (!is_floating(type)) fail(ErrorKind::kUnsupported, std::string(row.name) + " takes floating point, not " + name(type));
    return all(type, type == DType::kF64 ? DType::kI64 : DType::kI32);
  }
  if (rule == "i64") return all(DType::kI64, DType::kI64);
  if (rule == "f32_of_i64") return all(DType::kI64, DType::kF32);

  DType type = compute_type(operands.back());
  for (size_t i = rule == "second" ? 1 : 0; i < operands.size(); ++i) type = promote(type, compute_type(operands[i]));
  if (rule == "second") return {{DType::kBool, type, type}, type};
  if (rule == "bits") {
    if (is_floating(type)) fail(ErrorKind::kUnsupported, std::string(row.name) + " takes integers and bool, not " + name(type));
    if (std::string_view(row.name).starts_with("shift") && type == DType::kBool) type = DType::kI32;
    return all(type, type);
  }
  if (rule == "floating" || rule == "test" || std::string_view(row.facts) == "rounding") {
    if (!is_floating(type)) type = DType::kF32;
    return all(type, rule == "test" ? DType::kBool : type);
  }
  // A sum of bools counts them.
  if (type == DType::kBool) type = DType::kI32;
  OCL_ASSERT(rule == "same" || rule == "promoted" || rule == "bool", std::string(row.name) + ": unknown dtype rule in ops.def");
  return all(type, rule == "bool" ? DType::kBool : type);
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
  const std::string& type = facts(code).types.at(static_cast<size_t>(accumulator));
  const DType compute = compute_type(input);
  if (type == "bool") return DType::kBool;
  if (type == "i64") return DType::kI64;
  if (type == "wide") return is_floating(compute) ? compute : DType::kI64;
  OCL_ASSERT(type == "same", "unknown accumulator type in reductions.def: " + type);
  return compute == DType::kBool ? DType::kI32 : compute;
}

}  // namespace ocl::ir
