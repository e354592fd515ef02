// csrc/ir/body_builder.cpp: BodyBuilder writes a loop nest op by op. Builder uses it for its own nodes too.
#include <algorithm>

#include "csrc/ir/append.h"
#include "csrc/ir/builder.h"
#include "csrc/ir/facts.h"
#include "csrc/support/error.h"

namespace ocl::ir {

namespace {

std::map<Symbol, IndexExpr> loops_as(const std::vector<IndexExpr>& coords) {
  std::map<Symbol, IndexExpr> with;
  for (size_t i = 0; i < coords.size(); ++i) with.emplace(Symbol{SymbolKind::kLoop, static_cast<int>(i)}, coords[i]);
  return with;
}

}  // namespace

BodyBuilder::BodyBuilder(Builder& builder, Shape sizes, Shape reduce_sizes) : builder_(builder) {
  node_.sizes = std::move(sizes);
  node_.reduce_sizes = std::move(reduce_sizes);
  node_.origin = builder.origin;
}

DType BodyBuilder::dtype_of(int value) const {
  OCL_ASSERT(value >= 0 && value < static_cast<int>(node_.body.ops.size()), "no such value in this body");
  return node_.body.ops[value].dtype;
}

int BodyBuilder::load(const Value& value, const std::vector<IndexExpr>& coords, int mask) {
  OCL_ASSERT(coords.size() == value.sizes.size(), "a load needs a coordinate per dimension of the value");
  const Ranges ranges = builder_.graph.ranges(&node_);
  const auto with = loops_as(coords);
  if (value.kind != Value::Kind::kView) {
    const int plain = value.kind == Value::Kind::kConstant
                          ? constant(value.constant, value.dtype)
                          : index(simplify(substitute(value.index, with), ranges), value.dtype);
    if (mask == kNone) return plain;
    return op("where", {mask, plain, constant({is_floating(dtype_of(plain)), 0, 0}, dtype_of(plain))});
  }
  std::vector<int> masks;
  if (mask != kNone) masks = {cast(mask, DType::kBool)};
  std::vector<IndexExpr> at;
  for (const IndexExpr& coord : value.coords) at.push_back(simplify(substitute(coord, with), ranges));
  return push_load(node_.body, compute_type(value.dtype), value.buffer, at, masks);
}

int BodyBuilder::constant(Scalar value, DType dtype) {
  Scalar held = value;
  if (is_floating(dtype) && !value.is_float) held = {true, static_cast<double>(value.i), 0};
  if (!is_floating(dtype)) held = {false, 0, wrapped(value.is_float ? static_cast<int64_t>(value.f) : value.i, dtype)};
  if (dtype == DType::kBool) held = {false, 0, value.is_float ? value.f != 0 : value.i != 0};
  return push(node_.body, {OpCode::kConstant, compute_type(dtype), {}, held, kNone, {}});
}

int BodyBuilder::index(const IndexExpr& expr, DType dtype) {
  if (expr.is_const()) return constant({false, 0, expr.constant()}, dtype);
  return cast(push_index(node_.body, expr, is_integral(dtype, false) ? dtype : DType::kI64), dtype);
}

int BodyBuilder::cast(int value, DType dtype) {
  return dtype_of(value) == dtype ? value : push(node_.body, OpCode::kCast, dtype, {value});
}

int BodyBuilder::op(const std::string& name, const std::vector<int>& args) {
  OpCode code = op_code(name);
  std::vector<DType> dtypes;
  for (const int arg : args) dtypes.push_back(dtype_of(arg));
  if (code == OpCode::k_bitwise_not && dtypes.at(0) == DType::kBool) code = OpCode::k_logical_not;
  if (facts(code).fact == OpFact::k_rounding && is_integral(dtypes.at(0), true)) return args[0];
  const OpTypes types = op_types(code, dtypes);
  std::vector<int> operands;
  // An f16 value is held as f32 in a body, so it needs no cast to its compute type.
  for (size_t i = 0; i < args.size(); ++i)
    operands.push_back(compute_type(dtypes[i]) == types.operands[i] ? args[i] : cast(args[i], types.operands[i]));
  return push(node_.body, code, types.value, operands);
}

std::vector<Value> BodyBuilder::store(const std::vector<int>& values, const std::vector<DType>& dtypes) {
  OCL_ASSERT(values.size() == dtypes.size() && !values.empty(), "a map stores at least one value, each with a dtype");
  OCL_ASSERT(node_.reduce_sizes.empty(), "a nest with reduction loops ends with reduce()");
  std::vector<IndexExpr> coords;
  for (size_t i = 0; i < node_.sizes.size(); ++i) coords.push_back(IndexExpr::loop(static_cast<int>(i)));
  std::vector<Value> results;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool same = compute_type(dtype_of(values[i])) == compute_type(dtypes[i]);
    const int value = same ? values[i] : cast(values[i], dtypes[i]);
    results.push_back(builder_.new_buffer(dtypes[i], node_.sizes));
    node_.stores.push_back({results.back().buffer, coords, value});
  }
  node_.kind = NodeKind::kMap;
  builder_.graph.add_node(std::move(node_));
  return results;
}

void BodyBuilder::store_into(const Value& target, int value) {
  std::vector<IndexExpr> coords;
  for (size_t i = 0; i < target.sizes.size(); ++i) coords.push_back(IndexExpr::loop(static_cast<int>(i)));
  store_at(target, coords, value);
}

void BodyBuilder::store_at(const Value& target, const std::vector<IndexExpr>& coords, int value) {
  add_store(target, coords, value);
  end();
}

void BodyBuilder::add_store(const Value& target, const std::vector<IndexExpr>& coords, int value, int mask, StoreMode mode) {
  const bool scan = node_.kind == NodeKind::kScan;
  OCL_ASSERT(target.kind == Value::Kind::kView && (scan || node_.reduce_sizes.empty()),
             "a store needs a buffer and a nest without reduction loops");
  if (!scan && compute_type(dtype_of(value)) != compute_type(target.dtype)) value = cast(value, target.dtype);
  const Ranges ranges = builder_.graph.ranges(&node_);
  const auto with = loops_as(coords);
  Store store{target.buffer, {}, value, mask == kNone ? kNone : cast(mask, DType::kBool), mode};
  for (const IndexExpr& coord : target.coords) store.index.push_back(simplify(substitute(coord, with), ranges));
  node_.stores.push_back(std::move(store));
}

void BodyBuilder::end() {
  OCL_ASSERT(!node_.stores.empty(), "a nest stores something");
  builder_.graph.add_node(std::move(node_));
}

void BodyBuilder::scan(const std::string& reduction, const std::vector<int>& values, DType dtype, int reset) {
  OCL_ASSERT(node_.reduce_sizes.size() == 1, "a scan has one loop");
  set_reduction(reduction, values, dtype);
  node_.kind = NodeKind::kScan;
  node_.reset = reset == kNone ? kNone : cast(reset, DType::kBool);
}

std::vector<Value> BodyBuilder::reduce(const std::string& reduction, const std::vector<int>& values,
                                       const std::vector<DType>& dtypes) {
  return reduce_into(reduction, values, dtypes, node_.sizes, [this] {
    std::vector<IndexExpr> coords;
    for (size_t i = 0; i < node_.sizes.size(); ++i) coords.push_back(IndexExpr::loop(static_cast<int>(i)));
    return coords;
  }());
}

std::vector<Value> BodyBuilder::reduce_into(const std::string& reduction, std::vector<int> values,
                                            const std::vector<DType>& dtypes, const Shape& sizes,
                                            const std::vector<IndexExpr>& coords) {
  set_reduction(reduction, std::move(values), dtypes.at(0));
  const ReductionFacts& row = facts(node_.reduction);
  OCL_ASSERT(static_cast<int>(dtypes.size()) == row.results, reduction + ": a dtype per result");
  std::vector<Value> results;
  for (int i = 0; i < row.results; ++i) {
    results.push_back(builder_.new_buffer(dtypes[i], sizes));
    node_.stores.push_back({results.back().buffer, coords, i});
  }
  builder_.graph.add_node(std::move(node_));
  return results;
}

/// Sets the node's reduction and its input values, each cast to the type of the accumulator that it enters.
void BodyBuilder::set_reduction(const std::string& reduction, std::vector<int> values, DType dtype) {
  node_.kind = NodeKind::kReduce;
  node_.reduction = reduction_code(reduction);
  const ReductionFacts& row = facts(node_.reduction);
  // argmax and argmin also take the element's position, row-major over r*.
  if (values.size() == 1 && row.inputs == 2) {
    IndexExpr position = 0;
    const Shape strides = contiguous_strides(node_.reduce_sizes);
    for (size_t i = 0; i < strides.size(); ++i) position = position + IndexExpr::reduce(static_cast<int>(i)) * strides[i];
    values.push_back(index(position, DType::kI64));
  }
  OCL_ASSERT(static_cast<int>(values.size()) == row.inputs, reduction + ": wrong number of values");
  const DType element = dtype_of(values[0]);
  for (size_t i = 0; i < values.size(); ++i) {
    DType wanted = accumulator_dtype(node_.reduction, static_cast<int>(i), element);
    if (i == 0 && row.types[0] == AccumulatorType::k_wide && is_floating(compute_type(dtype)) && !is_floating(element))
      wanted = compute_type(dtype);
    if (compute_type(dtype_of(values[i])) != wanted) values[i] = cast(values[i], wanted);
  }
  node_.reduced = values;
}

}  // namespace ocl::ir
