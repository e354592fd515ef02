// csrc/ir/builder.cpp: inputs, nodes and results of a graph under construction. The views are in views.cpp.
#include "csrc/ir/builder.h"

#include <algorithm>

#include "csrc/ir/facts.h"
#include "csrc/ir/verify.h"
#include "csrc/support/error.h"

namespace ocl::ir {

namespace {

/// Converts a scalar to a dtype by PyTorch's rules.
Scalar convert(const Scalar& s, DType dtype) {
  if (dtype == DType::kBool) return {false, 0, s.is_float ? s.f != 0 : s.i != 0};
  if (is_floating(dtype)) return {true, s.is_float ? s.f : static_cast<double>(s.i), 0};
  return {false, 0, wrapped(s.is_float ? static_cast<int64_t>(s.f) : s.i, dtype)};
}

/// True if the value is all of its buffer: element (i0, i1, ...) of the value is element (i0, i1, ...) of the buffer.
bool whole_buffer(const Graph& graph, const Value& x) {
  if (x.kind != Value::Kind::kView) return false;
  const Buffer& buffer = graph.buffers.at(static_cast<size_t>(x.buffer));
  if (!(buffer.sizes == x.sizes) || buffer.dtype != x.dtype) return false;
  for (size_t i = 0; i < x.coords.size(); ++i)
    if (!(x.coords[i] == IndexExpr::loop(static_cast<int>(i))) && !(x.sizes[i].is_const(1) && x.coords[i].is_const(0)))
      return false;
  return true;
}

/// True if the value is all of its buffer but for dimensions of one element, which it lacks.
bool squeezed_buffer(const Graph& graph, const Value& x) {
  if (x.kind != Value::Kind::kView) return false;
  const Buffer& buffer = graph.buffers.at(static_cast<size_t>(x.buffer));
  if (!(squeezed(buffer.sizes, buffer.sizes) == x.sizes) || buffer.dtype != x.dtype) return false;
  int next = 0;
  for (size_t d = 0; d < buffer.sizes.size(); ++d)
    if (!(x.coords[d] == (buffer.sizes[d].is_const(1) ? IndexExpr(0) : IndexExpr::loop(next++)))) return false;
  return true;
}

/// Returns the common shape of the arguments, aligned at the last dimension. InternalError if they do not broadcast.
Shape broadcast(const Graph& graph, const std::vector<Value>& args) {
  size_t rank = 0;
  for (const Value& arg : args) rank = std::max(rank, arg.sizes.size());
  Shape sizes(rank, 1);
  const Ranges ranges = graph.ranges();
  for (const Value& arg : args) {
    for (size_t i = 0; i < arg.sizes.size(); ++i) {
      IndexExpr& size = sizes[rank - arg.sizes.size() + i];
      const IndexExpr& other = arg.sizes[i];
      if (size == other || other.is_const(1)) continue;
      const bool fits = size.is_const(1) || simplify(size - other, ranges).is_const(0);
      OCL_ASSERT(fits, "sizes " + size.str() + " and " + other.str() + " do not broadcast");
      size = other;
    }
  }
  return sizes;
}

/// Returns the storage dtype of an op's result by PyTorch's promotion. It may be f16 or bf16 although the body computes in f32.
/// `value` is the dtype in which the body has the result.
DType result_dtype(OpCode code, const std::vector<Value>& args, DType value) {
  const TypeRule rule = facts(code).rule;
  if (rule != TypeRule::k_same && rule != TypeRule::k_promoted && rule != TypeRule::k_floating && rule != TypeRule::k_second)
    return value;
  DType stored = args.back().dtype;
  for (size_t i = rule == TypeRule::k_second ? 1 : 0; i < args.size(); ++i) stored = promote(stored, args[i].dtype);
  if (rule == TypeRule::k_floating && !is_floating(stored)) return value;
  // A sum of bools is computed in i32 and stored as bool.
  return stored;
}

/// Adds a buffer to the graph, and returns the view of all of it.
Value add_whole(Graph& graph, Buffer buffer) {
  Value value;
  value.dtype = buffer.dtype;
  value.coords = loops(buffer.sizes.size());
  value.sizes = buffer.sizes;
  value.buffer = graph.add_buffer(std::move(buffer));
  return value;
}

}  // namespace

IndexExpr Builder::size_symbol(Range range) {
  graph.symbol_ranges.push_back(range);
  return IndexExpr::size(graph.symbols++);
}

Value Builder::new_buffer(DType dtype, Shape sizes) {
  Buffer buffer;
  buffer.dtype = dtype;
  buffer.sizes = std::move(sizes);
  return add_whole(graph, std::move(buffer));
}

Value Builder::input(DType dtype, Shape sizes, Shape strides, bool is_parameter, bool donated) {
  OCL_ASSERT(sizes.size() == strides.size(), "an input needs a stride per size");
  Buffer buffer;
  buffer.dtype = dtype;
  buffer.sizes = std::move(sizes);
  buffer.strides = std::move(strides);
  buffer.role = BufferRole::kInput;
  buffer.input = static_cast<int>(graph.inputs.size());
  buffer.is_parameter = is_parameter;
  buffer.donated = donated;
  Value value = add_whole(graph, std::move(buffer));
  graph.inputs.push_back(value.buffer);
  return value;
}

Value Builder::constant(Scalar scalar, DType dtype, Shape sizes) const {
  Value value;
  value.kind = Value::Kind::kConstant;
  value.dtype = dtype;
  value.sizes = std::move(sizes);
  value.constant = convert(scalar, dtype);
  return value;
}

Value Builder::iota(Shape sizes, const IndexExpr& expr, DType dtype) const {
  Value value;
  value.kind = Value::Kind::kIndex;
  value.dtype = dtype;
  value.sizes = std::move(sizes);
  value.index = expr;
  return value;
}

Value Builder::op(const std::string& name, const std::vector<Value>& args, std::optional<DType> dtype) {
  OpCode code = op_code(name);
  OCL_ASSERT(code > OpCode::kCast && static_cast<int>(args.size()) == facts(code).arity, name + ": wrong number of operands");
  std::vector<DType> dtypes;
  for (const Value& arg : args) dtypes.push_back(arg.dtype);
  const DType stored = dtype ? *dtype : result_dtype(code, args, op_types(code, dtypes).value);
  const Shape sizes = broadcast(graph, args);
  if (facts(code).fact == OpFact::k_rounding && is_integral(args[0].dtype, true))
    return cast(args[0], dtype.value_or(args[0].dtype));
  BodyBuilder body(*this, sizes, {});
  std::vector<int> loaded;
  for (const Value& arg : args) loaded.push_back(body.load(expand(arg, sizes), loops(sizes.size())));
  return body.store({body.op(name, loaded)}, {stored})[0];
}

Value Builder::cast(const Value& x, DType dtype) {
  if (x.dtype == dtype) return x;
  if (x.kind == Value::Kind::kConstant) return constant(x.constant, dtype, x.sizes);
  if (x.kind == Value::Kind::kIndex && is_integral(dtype, false) && size_bytes(dtype) >= size_bytes(x.dtype))
    return iota(x.sizes, x.index, dtype);
  BodyBuilder body(*this, x.sizes, {});
  const int loaded = body.load(x, loops(x.sizes.size()));
  return body.store({loaded}, {dtype})[0];
}

Value Builder::realize(const Value& x) { return whole_buffer(graph, x) ? x : copy(x); }

Value Builder::copy(const Value& x) {
  BodyBuilder body(*this, x.sizes, {});
  const int loaded = body.load(x, loops(x.sizes.size()));
  return body.store({loaded}, {x.dtype})[0];
}

std::vector<Value> Builder::reduce(const std::string& reduction, const Value& x, const std::vector<int>& dims, bool keepdim,
                                   std::optional<DType> dtype) {
  const ReductionFacts& row = facts(reduction_code(reduction));
  const int rank = static_cast<int>(x.sizes.size());
  std::vector<bool> reduced(x.sizes.size(), dims.empty());
  for (const int dim : dims) {
    if (rank == 0) continue;
    OCL_ASSERT(dim >= -rank && dim < rank, reduction + ": no dimension " + std::to_string(dim));
    reduced[dim < 0 ? dim + rank : dim] = true;
  }
  Shape outer, inner, result_sizes;
  std::vector<IndexExpr> element, coords;  // Coordinates of an element of x over i* and r*, and of the result over i*.
  for (size_t i = 0; i < x.sizes.size(); ++i) {
    if (reduced[i]) {
      element.push_back(IndexExpr::reduce(static_cast<int>(inner.size())));
      inner.push_back(x.sizes[i]);
      if (!keepdim) continue;
      result_sizes.emplace_back(1);
      coords.emplace_back(0);
    } else {
      element.push_back(IndexExpr::loop(static_cast<int>(outer.size())));
      coords.push_back(element.back());
      result_sizes.push_back(x.sizes[i]);
      outer.push_back(x.sizes[i]);
    }
  }
  const bool wide = row.types[0] == AccumulatorType::k_wide;
  // welford and softmax need floating point.
  const bool statistics = wide && row.accumulators > 1;
  DType computed = compute_type(x.dtype);
  if (statistics && !is_floating(computed)) computed = DType::kF32;
  if (wide && dtype) computed = compute_type(*dtype);
  if (row.types[0] == AccumulatorType::k_bool) computed = DType::kBool;

  std::vector<DType> dtypes;
  for (const int accumulator : row.result_accumulator) {
    DType result = accumulator_dtype(reduction_code(reduction), accumulator, computed);
    const bool element_type =
        row.types[accumulator] == AccumulatorType::k_same || (wide && !statistics && is_floating(x.dtype));
    if (element_type) result = x.dtype;
    dtypes.push_back(dtype.value_or(result));
  }
  BodyBuilder body(*this, outer, inner);
  int value = body.load(x, element);
  if (compute_type(body.dtype_of(value)) != computed) value = body.cast(value, computed);
  return body.reduce_into(reduction, {value}, dtypes, result_sizes, coords);
}

Value Builder::concat(const std::vector<Value>& xs, int dim) {
  OCL_ASSERT(!xs.empty(), "concat of nothing");
  const int rank = static_cast<int>(xs[0].sizes.size());
  const size_t d = static_cast<size_t>(dim < 0 ? dim + rank : dim);
  DType dtype = xs[0].dtype;
  Shape sizes = xs[0].sizes;
  OCL_ASSERT(d < sizes.size(), "concat: no such dimension");
  sizes[d] = 0;
  for (const Value& x : xs) {
    OCL_ASSERT(x.sizes.size() == sizes.size(), "concat of values with different ranks");
    dtype = promote(dtype, x.dtype);
    sizes[d] = sizes[d] + x.sizes[d];
  }
  sizes[d] = simplify(sizes[d], graph.ranges());
  const Value result = new_buffer(dtype, sizes);
  IndexExpr begin = 0;
  for (const Value& x : xs) {
    const IndexExpr end = begin + x.sizes[d];
    copy_into(slice(result, static_cast<int>(d), begin, end, 1), x);
    begin = end;
  }
  return result;
}

void Builder::copy_into(const Value& target, const Value& value) {
  OCL_ASSERT(target.kind == Value::Kind::kView, "copy_into needs a buffer to write to");
  const bool overlaps = value.kind == Value::Kind::kView && value.buffer == target.buffer && !(value.coords == target.coords);
  const Value source = expand(overlaps ? copy(value) : value, target.sizes);
  BodyBuilder body(*this, target.sizes, {});
  const int loaded = body.load(source, loops(target.sizes.size()));
  body.store_into(target, loaded);
}

void Builder::output(const Value& value, const Shape& strides) {
  const auto add = [&](const Value& x, const Shape& given, const IndexExpr& offset) {
    graph.outputs.push_back({x.buffer, value.sizes, given, offset});
  };
  const auto buffer_of = [&](const Value& x) -> Buffer& { return graph.buffers.at(static_cast<size_t>(x.buffer)); };
  if (!strides.empty()) OCL_ASSERT(strides.size() == value.sizes.size(), "an output needs a stride per size");

  // An input's strides are fixed, and so are the strides of a buffer that place() returned. If the value already has the
  // expected strides in such a buffer, the result is a window on that memory.
  if (value.kind == Value::Kind::kView && buffer_of(value).strides && buffer_of(value).dtype == value.dtype) {
    if (const auto window = strided(graph, as_view(value)); window && same_strides(strides, window->strides, value.sizes))
      return add(value, window->strides, window->offset);
  }
  if (strides.empty()) {
    if (value.sizes.empty() || whole_buffer(graph, value)) {
      const Value x = realize(value);
      const auto& decided = buffer_of(x).strides;
      return add(x, decided ? *decided : Shape{}, 0);
    }
    return add(squeezed_buffer(graph, value) ? value : copy(value), {}, 0);
  }
  add(place(value, strides), strides, 0);
}

Value Builder::place(const Value& value, const Shape& strides) {
  const auto buffer_of = [&](const Value& x) -> Buffer& { return graph.buffers.at(static_cast<size_t>(x.buffer)); };
  OCL_ASSERT(strides.size() == value.sizes.size(), "a result needs a stride per size");
  if (value.kind == Value::Kind::kView && buffer_of(value).strides && buffer_of(value).dtype == value.dtype) {
    const auto window = strided(graph, as_view(value));
    if (window && window->offset.is_const(0) && same_strides(strides, window->strides, value.sizes)) return value;
  }
  // A dimension whose expected stride is 0 has one element in memory.
  Value stored = value;
  Shape kept = strides;
  for (size_t i = value.sizes.size(); i-- > 0;) {
    if (!strides[i].is_const(0) || value.sizes[i].is_const(1)) continue;
    stored = select(stored, static_cast<int>(i), 0);
    kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(i));
  }
  // If the value permutes the dimensions of a buffer whose strides are still open, that buffer takes the expected strides.
  // Otherwise the value is copied.
  if (!permuted_strides(stored, kept)) stored = copy(stored);
  buffer_of(stored).strides = *permuted_strides(stored, kept);
  return stored;
}

void Builder::output_window(const Value& base, const Shape& sizes, const Shape& strides, const IndexExpr& offset) {
  OCL_ASSERT(strides.size() == sizes.size(), "a result needs a stride per size");
  graph.outputs.push_back({base.buffer, sizes, strides, offset});
}

bool Builder::same_strides(const Shape& promised, const Shape& actual, const Shape& sizes) const {
  if (promised.empty()) return true;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (!sizes[i].is_const(1) && !(promised[i] == actual[i])) return false;
  return true;
}

std::optional<Shape> Builder::permuted_strides(const Value& x, const Shape& strides) const {
  if (x.kind != Value::Kind::kView) return {};
  const Buffer& buffer = graph.buffers.at(static_cast<size_t>(x.buffer));
  if (buffer.strides || buffer.role == BufferRole::kInput || buffer.dtype != x.dtype) return {};
  Shape result;
  std::vector<bool> used(x.sizes.size(), false);
  for (size_t d = 0; d < buffer.sizes.size(); ++d) {
    if (buffer.sizes[d].is_const(1)) {
      result.emplace_back(1);
      const IndexExpr& coord = x.coords[d];
      if (coord.op() == IndexOp::kSymbol) {
        used[coord.symbol().index] = true;
        result.back() = strides[coord.symbol().index];
      }
      continue;
    }
    if (x.coords[d].op() != IndexOp::kSymbol || x.coords[d].symbol().kind != SymbolKind::kLoop) return {};
    const size_t dim = static_cast<size_t>(x.coords[d].symbol().index);
    if (used[dim] || !(x.sizes[dim] == buffer.sizes[d])) return {};
    used[dim] = true;
    result.push_back(strides[dim]);
  }
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i] && !x.sizes[i].is_const(1)) return {};
  return result;
}

Graph Builder::finish() {
  verify(graph, Level::kGraph);
  return std::move(graph);
}

}  // namespace ocl::ir
