// csrc/codegen/body_printer.cpp: prints values, operations and levels. Loads and stores are in body_memory.cpp.
#include "csrc/codegen/body_printer.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "csrc/codegen/op_library.h"
#include "csrc/codegen/rounded_uses.h"
#include "csrc/ir/facts.h"
#include "csrc/support/error.h"

namespace ocl::codegen {

namespace {

// Loop numbers that stand for the position of a lane loop: kStepLoop for the number of the step, kStepLoop + 1 for the
// lane within the step.
constexpr int kStepLoop = 1 << 20;

void collect_values(const IndexExpr& e, std::map<int, Value>& values) {
  if (e.op() == ir::IndexOp::kSymbol) {
    if (e.symbol().kind == SymbolKind::kValue) values.emplace(e.symbol().index, Value{});
  } else if (e.op() != ir::IndexOp::kConst) {
    for (const IndexExpr& arg : e.args()) collect_values(arg, values);
  }
}

bool is_identifier(const std::string& text, size_t at) {
  return std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_';
}

/// Adds the type suffix to the functions of kernels/base/ops.cl in an op's text.
std::string with_suffix(const std::string& text, Type type, bool is_cpu) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && is_identifier(text, end)) ++end;
    const std::string given = text.substr(i, std::max<size_t>(end - i, 1));
    const std::string word = own_function(given, ir::compute_type(type.dtype), is_cpu);
    result += word;
    if (word.starts_with("op_")) result += "_" + type_suffix(type);
    i += given.size();
  }
  return result;
}

/// Returns the type of 8 or 16 bits that holds the op's result exactly, if the op returns one of its operands or a negated
/// operand.
std::optional<DType> result_fits(const ir::Node& node, const ir::Op& op, const std::vector<Value>& args) {
  constexpr std::array kPicks = {OpCode::k_where, OpCode::k_relu,    OpCode::k_neg,
                                 OpCode::k_abs,   OpCode::k_minimum, OpCode::k_maximum};
  if (std::ranges::find(kPicks, op.code) == kPicks.end()) return std::nullopt;
  std::optional<DType> all;
  bool constants = false;
  for (size_t i = op.code == OpCode::k_where ? 1 : 0; i < args.size(); ++i) {
    const std::optional<DType> fits = ir::is_narrow_float(args[i].dtype) ? std::optional(args[i].dtype) : args[i].fits;
    const ir::Op& from = node.body.ops[static_cast<size_t>(op.args[i])];
    if (!fits && from.code == OpCode::kConstant && fits_halves(from.constant))
      constants = true;
    else if (!fits || (all && fits != all))
      return std::nullopt;
    else
      all = fits;
  }
  return constants && all != DType::kF16 && all != DType::kBF16 ? std::nullopt : all;
}

bool is_comparison(OpCode code) {
  constexpr std::array kComparisons = {OpCode::k_eq, OpCode::k_ne, OpCode::k_lt, OpCode::k_le, OpCode::k_gt, OpCode::k_ge};
  return std::ranges::find(kComparisons, code) != kComparisons.end();
}

/// Returns the text with its placeholders replaced.
std::string filled(const std::string& text, const std::map<std::string, std::string>& with) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    if (text[i] != '$') {
      result += text[i++];
      continue;
    }
    size_t end = i + 1;
    while (end < text.size() && is_identifier(text, end)) ++end;
    const auto found = with.find(text.substr(i + 1, end - i - 1));
    OCL_ASSERT(found != with.end(), "unknown placeholder in the row '" + text + "'");
    result += found->second;
    i = end;
  }
  return result;
}

/// True if C leaves overflow of + - * undefined for the type. Smaller scalars are computed in int, which holds every
/// result.
bool may_overflow(Type type) {
  return ir::is_integral(type.dtype, false) && type.dtype != DType::kU8 && (type.width > 1 || lane_bytes(type.dtype) >= 4);
}

/// Prints the negation of a vector of signed integers for a CPU. Intel's compiler (2026.22) takes -x < 0 for x > 0 in
/// vectors if -x has a second use, which is wrong for the least integer. Unsigned types do not help there.
std::string negation_text(const std::string& x, Type type) {
  const auto lanes = [&](const std::string& scalar) { return broadcast_text(scalar, type.dtype, type.width); };
  return "(" + x + " == " + lanes(extreme(type.dtype, false)) + " ? " + x + " : sub_sat(" + lanes("0") + ", " + x + "))";
}

/// Prints a row of + - * for signed integers: computed in the unsigned type, so that it wraps around as in PyTorch.
std::string wrapping_text(const std::string& row, Type type, std::map<std::string, std::string> with, bool is_cpu) {
  OCL_ASSERT(row.find_first_not_of("$+-* ()abxy0123456789") == std::string::npos,
             "a row for integers is + - * alone, or functions of kernels/base/ops.cl, which wrap: " + row);
  if (row == "(-$0)" && type.width > 1 && is_cpu) return negation_text(with.at("0"), type);
  for (auto& [name, text] : with) text = "as_u" + type_name(type) + "(" + text + ")";
  return "as_" + type_name(type) + (row[0] == '(' ? filled(row, with) : "(" + filled(row, with) + ")");
}

}  // namespace

std::string op_text(const std::string& row, Type type, const std::map<std::string, std::string>& with, bool is_cpu) {
  if (may_overflow(type) && row.find_first_of("+-*") != std::string::npos) return wrapping_text(row, type, with, is_cpu);
  return filled(with_suffix(row, type, is_cpu), with);
}

BodyPrinter::BodyPrinter(Kernel& kernel, const ir::Ranges& ranges)
    : kernel_(kernel), ranges_(ranges), steps_(kernel.dialect().is_cpu) {
  levels_.emplace_back();
}

void BodyPrinter::push(const std::map<ir::Symbol, std::string>& names) { levels_.push_back({Writer(), names}); }

void BodyPrinter::set_lane(ir::Symbol symbol, int width) {
  lane_ = symbol;
  lane_width_ = width;
  lane_level_ = static_cast<int>(levels_.size()) - 1;
}

Writer BodyPrinter::pop() {
  OCL_ASSERT(stores_.empty(), "stores are left when a loop ends");
  Writer text = std::move(levels_.back().writer);
  levels_.pop_back();
  const int depth = static_cast<int>(levels_.size());
  std::erase_if(memo_, [&](const auto& entry) { return entry.second.level >= depth; });
  std::erase_if(registers_, [&](const Register& r) { return r.value.level >= depth; });
  if (lane_ && lane_level_ >= depth) lane_.reset();
  return text;
}

Writer BodyPrinter::pop_saving(SavedLevel& saved) {
  const int level = depth() - 1;
  for (const auto& entry : memo_)
    if (entry.second.level == level) saved.memo_.insert_or_assign(entry.first, entry.second);
  saved.registers_.clear();
  std::copy_if(registers_.begin(), registers_.end(), std::back_inserter(saved.registers_),
               [&](const Register& r) { return r.value.level == level; });
  saved.stores_ = std::move(stores_);
  stores_.clear();
  return pop();
}

void BodyPrinter::resume(SavedLevel& saved) {
  memo_.insert(saved.memo_.begin(), saved.memo_.end());
  registers_.insert(registers_.end(), saved.registers_.begin(), saved.registers_.end());
  stores_ = std::move(saved.stores_);
  saved.stores_.clear();
}

Value BodyPrinter::define(int level, DType dtype, int width, const std::string& text) {
  const std::string name = kernel_.fresh("v");
  levels_[level].writer.line("const $t $s = $s;", Type{dtype, width}, name, text);
  return {name, dtype, width, level, false};
}

std::string BodyPrinter::broadcast_to_width(const Value& value, int width) const {
  if (value.width == width) return value.text;
  OCL_ASSERT(value.width == 1, "a vector where a scalar is due: " + value.text);
  return broadcast_text(value.text, value.dtype, width);
}

Value BodyPrinter::convert(const Value& value, DType dtype) {
  if (value.dtype == dtype) return value;
  Value result = value;
  result.dtype = dtype;
  if (value.fits == dtype) return result;
  const std::string text = convert_text(value.text, {value.dtype, value.width}, dtype);
  if (ir::is_narrow_float(value.dtype)) result.fits = value.dtype;
  if (text == value.text) return result;
  Value made = define(value.level, dtype, value.width, text);
  if (value.dtype == DType::kF32 && (dtype == DType::kBF16 || dtype == DType::kF16)) made.unrounded = value.text;
  return made;
}

Value BodyPrinter::value(NodeId node, int op) {
  const auto found = memo_.find({node, op});
  if (found != memo_.end()) return found->second;
  const ir::Op& o = kernel_.graph().nodes[node].body.ops.at(static_cast<size_t>(op));
  Value result;
  switch (o.code) {
    case OpCode::kConstant:
      result = constant(o);
      break;
    case OpCode::kIndex:
      result = convert(index_value(node, op), o.dtype);
      break;
    case OpCode::kLoad:
      result = load(node, o);
      break;
    case OpCode::kCast:
      result = convert(value(node, o.args[0]), o.dtype);
      break;
    default:
      if (is_cached(node, op))
        result = define(lane_level_, o.dtype, lane_width_, load_text_of(cached_ops_.at({node, op}), o.dtype));
      else if (o.code == OpCode::k_div && is_cached(node, o.args[0]) && value(node, o.args[1]).level < lane_level_)
        result = cached_quotient(node, o);
      else if (const std::optional<Value> padded = load_or_infinity(node, o))
        result = *padded;
      else
        result = operation(node, op, text_of(node, op));
      break;
  }
  memo_[{node, op}] = result;
  return result;
}

Value BodyPrinter::constant(const ir::Op& op) const {
  std::string text = literal({op.constant, op.dtype});
  if (text[0] == '-') text = "(" + text + ")";
  return {text, op.dtype, 1, 0, true};
}

/// Prints a quotient whose dividend is a cached exponential. It becomes a product with the reciprocal of the divisor,
/// which is computed once per row.
Value BodyPrinter::cached_quotient(NodeId node, const ir::Op& op) {
  const Value dividend = value(node, op.args[0]), divisor = value(node, op.args[1]);
  const auto [inverse, fresh] = memo_.try_emplace({node, ~op.args[1]});
  if (fresh) inverse->second = define(divisor.level, op.dtype, 1, "1 / " + divisor.text);
  return define(dividend.level, op.dtype, dividend.width,
                dividend.text + " * " + broadcast_to_width(inverse->second, dividend.width));
}

/// Returns the 32-bit value that an op extends to 64 bits: a position, or what is cast. A constant that needs 32 bits counts.
std::optional<Value> BodyPrinter::narrow(NodeId node, int op) {
  const std::vector<ir::Op>& ops = kernel_.graph().nodes[node].body.ops;
  const ir::Op& o = ops.at(static_cast<size_t>(op));
  if (o.dtype != DType::kI64) return std::nullopt;
  std::optional<int64_t> known;
  if (o.code == OpCode::kConstant && !o.constant.is_float) known = o.constant.i;
  if (o.code == OpCode::kIndex)
    if (const IndexExpr e = ir::simplify(o.index[0], ranges_); e.is_const()) known = e.constant();
  if (known && static_cast<int32_t>(*known) == *known)
    return constant({OpCode::kConstant, DType::kI32, {}, {false, 0, *known}, ir::kNone, {}});
  std::optional<Value> found;
  if (o.code == OpCode::kIndex) found = index_value(node, op);
  if (o.code == OpCode::kCast && ops.at(static_cast<size_t>(o.args[0])).dtype == DType::kI32) found = value(node, o.args[0]);
  return found && found->dtype == DType::kI32 ? found : std::nullopt;
}

/// Returns the operands of an op. A comparison of 64-bit integers that were extended compares the 32-bit ones: CPUs then
/// compare twice as many at once. And Mesa 22.3 (rusticl) takes `(long)x < 100L` as false for every int x.
std::vector<Value> BodyPrinter::operands(NodeId node, const ir::Op& op) {
  std::vector<Value> args;
  if (is_comparison(op.code))
    for (const int arg : op.args)
      if (const std::optional<Value> narrowed = narrow(node, arg)) args.push_back(*narrowed);
  if (args.size() == op.args.size()) return args;
  args.clear();
  for (const int arg : op.args) args.push_back(value(node, arg));
  return args;
}

std::string BodyPrinter::text_of(NodeId node, int op) const {
  const std::string row = ir::facts(kernel_.graph().nodes[node].body.ops[static_cast<size_t>(op)].code).text;
  if (shortened(row, DType::kBF16, kernel_.dialect()) == row) return row;
  const std::optional<DType> rounded = rounded_to(kernel_.schedule(), node, op);
  return rounded ? shortened(row, *rounded, kernel_.dialect()) : row;
}

Value BodyPrinter::operation(NodeId node, int number, const std::string& row) {
  const ir::Op& op = kernel_.graph().nodes[node].body.ops.at(static_cast<size_t>(number));
  std::vector<Value> args = operands(node, op);
  for (Value& arg : args) {
    if (arg.unrounded.empty() || !arg.fits || !may_round_later(kernel_.schedule(), node, number, *arg.fits)) continue;
    arg.text = arg.unrounded;
    arg.fits = std::nullopt;
  }
  std::vector<DType> dtypes;
  int level = 0, width = 1;
  for (const Value& arg : args) {
    dtypes.push_back(arg.dtype);
    level = std::max(level, arg.level);
    width = std::max(width, arg.width);
  }
  const ir::OpTypes types = ir::op_types(op.code, dtypes);
  std::map<std::string, std::string> with;
  for (size_t i = 0; i < args.size(); ++i) {
    // Converts bool to the type in which the op's row of ops.def computes. f16 and bf16 are floats already.
    const Value converted =
        ir::compute_type(args[i].dtype) == types.operands[i] ? args[i] : convert(args[i], types.operands[i]);
    std::string text = broadcast_to_width(converted, width);
    if (op.code == OpCode::k_where && i == 0) text = mask_text(text, DType::kBool, types.value, width);
    with[std::to_string(i)] = text;
  }
  const DType operand = types.operands.back();
  const auto lanes = [&](const std::string& scalar) {
    return broadcast_text(operand == DType::kF64 ? scalar : scalar + "f", operand, width);
  };
  // `&` of scalar bools is printed as `&&`. With AVX-512, LLVM 15 (PoCL 3.1) collects such comparisons in a mask and
  // loses them.
  const bool both =
      types.value == DType::kBool && width == 1 && (op.code == OpCode::k_logical_and || op.code == OpCode::k_bitwise_and);
  const Dialect& dialect = kernel_.dialect();
  const bool by_fma = op.code == OpCode::k_neg && ir::is_floating(operand) && !dialect.keeps_negations;
  std::string text = both     ? "(" + with["0"] + " && " + with["1"] + ")"
                     : by_fma ? "fma(" + with["0"] + ", " + lanes("-1.0") + ", " + lanes("-0.0") + ")"
                              : op_text(row, {operand, width}, with, dialect.is_cpu);
  if (types.value == DType::kBool) text = mask_text(text, operand, DType::kBool, width);
  if (width == 1 && op.code != OpCode::k_where && lane_bytes(types.value) < 4)
    // C computes small integers in int.
    text = "(" + type_name({types.value, 1}) + ")" + text;
  else if (row[0] == '(' && text[0] == '(')
    text = text.substr(1, text.size() - 2);
  Value result = define(level, types.value, width, text);
  result.fits = result_fits(kernel_.graph().nodes[node], op, args);
  return types.value == ir::compute_type(op.dtype) ? result : convert(result, op.dtype);
}

/// Returns a position before it is converted to the op's type: an i32, or an i64 if the kernel's indices are. It is printed
/// once, and kept beside the op's value.
Value BodyPrinter::index_value(NodeId node, int op) {
  const auto [found, fresh] = memo_.try_emplace({node, ~op});
  if (fresh) found->second = position(node, kernel_.graph().nodes[node].body.ops.at(static_cast<size_t>(op)));
  return found->second;
}

Value BodyPrinter::position(NodeId node, const ir::Op& op) {
  const ResolvedIndex resolved = resolve(node, op.index[0]);
  const DType dtype = kernel_.wide() ? DType::kI64 : DType::kI32;
  if (!resolved.varies) {
    if (resolved.e.is_const())
      return constant({OpCode::kConstant, op.dtype, {}, {false, 0, resolved.e.constant()}, ir::kNone, {}});
    return define(resolved.level, dtype, 1, spell(resolved, ir::kNone));
  }
  if (resolved.coefficient) {
    const std::string n = std::to_string(lane_width_), type = type_name({dtype, lane_width_});
    std::string lanes;
    for (int lane = 0; lane < lane_width_; ++lane)
      lanes += (lane ? ", " : "") + std::to_string(lane * resolved.coefficient->constant());
    return define(resolved.level, dtype, lane_width_,
                  "(" + type + ")(" + spell(resolved, 0) + ") + (" + type + ")(" + lanes + ")");
  }
  std::vector<std::string> lanes;
  for (int lane = 0; lane < lane_width_; ++lane) lanes.push_back(spell(resolved, lane));
  return define(resolved.level, dtype, lane_width_, gather_text(lanes, dtype));
}

BodyPrinter::ResolvedIndex BodyPrinter::resolve(NodeId node, const IndexExpr& e) {
  ResolvedIndex resolved;
  resolved.e = ir::simplify(e, ranges_);
  collect_values(resolved.e, resolved.values);
  bool value_varies = false;
  for (auto& [op, v] : resolved.values) {
    v = value(node, op);
    resolved.level = std::max(resolved.level, v.level);
    value_varies = value_varies || v.width > 1;
  }
  for (size_t level = 1; level < levels_.size(); ++level)
    for (const auto& [symbol, name] : levels_[level].names)
      if (resolved.e.uses(symbol)) resolved.level = std::max(resolved.level, static_cast<int>(level));
  resolved.varies = value_varies || (lane_ && lane_width_ > 1 && resolved.e.uses(*lane_));
  if (resolved.varies && !value_varies) resolve_lanes(resolved);
  return resolved;
}

/// Finds out how an expression changes from lane to lane. A quotient by a multiple of the width is the same for all
/// lanes if the lane loop's position is always a multiple of the width. Such quotients occur in concatenated tensors
/// and in rows that are split into heads.
void BodyPrinter::resolve_lanes(ResolvedIndex& resolved) const {
  if (const auto affine = ir::affine_in(resolved.e, *lane_)) {
    if (affine->coefficient.is_const()) resolved.coefficient = affine->coefficient;
    resolved.multiple = ranges_.known_divides(lane_width_, affine->rest);
    resolved.rest = affine->rest;
    return;
  }
  if (!steps_ && !aligned_) return;
  const IndexExpr step = IndexExpr::loop(kStepLoop), lane = IndexExpr::loop(kStepLoop + 1);
  ir::Ranges ranges = ranges_;
  ranges.set_extent(lane.symbol(), lane_width_);
  const IndexExpr e = ir::simplify(ir::substitute(resolved.e, {{*lane_, step * lane_width_ + lane}}), ranges);
  const auto affine = ir::affine_in(e, lane.symbol());
  if (!affine || !affine->coefficient.is_const()) return;
  resolved.varies = !affine->coefficient.is_const(0);
  if (resolved.varies) resolved.coefficient = affine->coefficient;
  resolved.rest = affine->rest;
  resolved.multiple = ranges.known_divides(lane_width_, affine->rest);
}

/// True if an index that uses this value is computed in 64 bits. On GPUs 64 bits cost nothing. NVIDIA's assembler (CUDA
/// 13.0, sm_90) merges loads from different addresses if a truncated 64-bit value is multiplied: `in[(int)v * 5 + 3]`
/// reads the element of `in[(int)v * 5 + 4]`.
bool BodyPrinter::is_long(const Value& value) const { return value.dtype == DType::kI64 && !kernel_.dialect().is_cpu; }

bool BodyPrinter::any_long(const ResolvedIndex& resolved) const {
  return std::ranges::any_of(resolved.values, [&](const auto& entry) { return is_long(entry.second); });
}

const char* BodyPrinter::offset_type(const ResolvedIndex& resolved) const {
  return any_long(resolved) ? "long" : kernel_.index_type();
}

std::string BodyPrinter::spell(const ResolvedIndex& resolved, int lane) const {
  IndexExpr e = resolved.e;
  if (lane > 0 && lane_ && e.uses(*lane_)) {
    const IndexExpr here = IndexExpr::symbol(lane_->kind, lane_->index);
    e = ir::substitute(e, {{*lane_, here + lane}});
  }
  const bool mixed = !kernel_.wide() && any_long(resolved);
  const IndexSpelling spelling{
      kernel_.wide() || mixed, mixed, [&](ir::Symbol s) -> std::string {
        if (s.kind == SymbolKind::kSize) return kernel_.size(s.index);
        if (s.kind == SymbolKind::kValue) {
          const Value& v = resolved.values.at(s.index);
          const std::string text = v.width > 1 ? lane_text(v.text, v.dtype, std::max(lane, 0)) : v.text;
          const DType wanted = kernel_.wide() ? DType::kI64 : DType::kI32;
          return v.dtype == wanted || v.constant || is_long(v) ? text : std::string("(") + kernel_.index_type() + ")" + text;
        }
        for (auto level = levels_.rbegin(); level != levels_.rend(); ++level)
          if (const auto found = level->names.find(s); found != level->names.end()) return found->second;
        fail(ErrorKind::kInternal, "index " + resolved.e.str() + " uses a loop that is not open here");
      }};
  return index_text(e, ranges_, spelling);
}

std::string BodyPrinter::index(const IndexExpr& e) const {
  ResolvedIndex resolved;
  resolved.e = ir::simplify(e, ranges_);
  return spell(resolved, ir::kNone);
}

void BodyPrinter::run_map(NodeId node) {
  for (const ir::Store& store : kernel_.graph().nodes[node].stores) set_result(node, store, value(node, store.value));
}

}  // namespace ocl::codegen
