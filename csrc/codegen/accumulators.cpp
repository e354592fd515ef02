// csrc/codegen/accumulators.cpp: prints the rows of reductions.def as statements.
#include "csrc/codegen/accumulators.h"

#include <algorithm>
#include <array>

#include "csrc/ir/facts.h"
#include "csrc/support/error.h"

namespace ocl::codegen {

using ir::ReductionStage;

namespace {

/// Where doubles are as fast as three operations with floats, a sum in two parts is a sum of doubles.
ir::ReductionCode printed_reduction(const ir::Node& node, const Dialect& dialect) {
  const bool in_doubles = dialect.is_cpu && dialect.fp64 && node.stage == ReductionStage::kWhole;
  return in_doubles && node.reduction == ir::ReductionCode::k_twosum ? ir::ReductionCode::k_sum : node.reduction;
}

}  // namespace

Accumulators::Accumulators(BodyPrinter& body, ir::NodeId node)
    : body_(body),
      node_(node),
      n_(body.kernel().graph().nodes[node]),
      facts_(ir::facts(printed_reduction(n_, body.kernel().dialect()))) {
  if (facts_.accumulators != ir::facts(n_.reduction).accumulators) {
    types_ = {DType::kF64};
    return;
  }
  const DType input = n_.body.ops.at(static_cast<size_t>(n_.reduced.at(0))).dtype;
  for (int i = 0; i < facts_.accumulators; ++i) types_.push_back(ir::accumulator_dtype(n_.reduction, i, input));
  // Where indices have 32 bits, so have the positions of elements.
  if (facts_.kind != ir::ReductionKind::k_position) return;
  const ir::Op& position = n_.body.ops.at(static_cast<size_t>(n_.reduced.at(1)));
  if (position.code == ir::OpCode::kIndex && !body.kernel().wide()) types_[1] = DType::kI32;
  in_order_ = n_.kind == ir::NodeKind::kReduce && n_.stage == ReductionStage::kWhole && n_.reduce_sizes.size() == 1 &&
              position.code == ir::OpCode::kIndex && position.index.at(0) == IndexExpr::reduce(0);
}

Accumulators::Accumulators(const Accumulators& of, const ir::ReductionFacts& row, Map map)
    : body_(of.body_),
      node_(of.node_),
      n_(of.n_),
      facts_(row),
      types_(of.types_.begin(), of.types_.begin() + row.accumulators),
      map_(std::move(map)) {}

bool Accumulators::wants_blocks() const { return facts_.types[0] == ir::AccumulatorType::k_wide && ir::is_floating(types_[0]); }

Accumulators::Carried Accumulators::names() const {
  Carried result;
  for (size_t i = 0; i < count(); ++i) result.push_back(body_.kernel().fresh("a"));
  return result;
}

std::string Accumulators::row_text(const std::string& row, size_t accumulator, int width,
                                   std::map<std::string, std::string> with) const {
  with["lowest"] = broadcast_text(extreme(types_[accumulator], false), types_[accumulator], width);
  with["highest"] = broadcast_text(extreme(types_[accumulator], true), types_[accumulator], width);
  with["true"] = width > 1 ? "-1" : "1";
  const std::string text = op_text(row, {types_[0], width}, with, body_.kernel().dialect().is_cpu);
  const size_t question = text.find(" ? ");
  if (question == std::string::npos) return text;
  return mask_text(text.substr(0, question), types_[0], types_[accumulator], width) + text.substr(question);
}

std::string Accumulators::before_text(const std::string& position, const std::string& other, int width) const {
  return mask_text("(" + position + " < " + other + ")", types_[1], types_[0], width);
}

std::string Accumulators::none_text(int width) const {
  return mask_text(broadcast_text("0", DType::kI32, width), DType::kI32, types_[0], width);
}

void Accumulators::declare(Writer& writer, const Carried& carried, int width) const { declare_from(0, writer, carried, width); }

void Accumulators::declare_from(size_t first, Writer& writer, const Carried& carried, int width) const {
  for (size_t i = first; i < count(); ++i) {
    const std::string identity = row_text(facts_.identities[i], i, width, {});
    const Type type{types_[i], width};
    writer.line("$t $s = $s;", type, carried[i],
                width > 1 && identity[0] != '(' ? "(" + type_name(type) + ")(" + identity + ")" : identity);
  }
}

void Accumulators::assign(Writer& writer, const Carried& to, const std::vector<std::string>& texts, int width) const {
  if (count() == 1) {
    writer.line("$s = $s;", to[0], texts[0]);
    return;
  }
  Carried next;  // All texts read the old accumulators, so the new values go to temporaries first.
  for (size_t i = 0; i < count(); ++i) {
    next.push_back(body_.kernel().fresh("n"));
    writer.line("const $t $s = $s;", Type{types_[i], width}, next[i], texts[i]);
  }
  for (size_t i = 0; i < count(); ++i) writer.line("$s = $s;", to[i], next[i]);
}

bool Accumulators::shifted() const { return facts_.kind == ir::ReductionKind::k_spread && n_.stage != ReductionStage::kFinal; }

/// Returns the values that the reduction takes from the current element, at the current width and in the accumulators'
/// types. Scalars are broadcast.
std::vector<std::string> Accumulators::inputs() {
  const int width = body_.lane_width();
  if (!loads_) return {map_("", width)};
  std::vector<std::string> result;
  for (size_t i = 0; i < n_.reduced.size(); ++i) {
    const DType dtype = types_[std::min(i, types_.size() - 1)];
    Value x = body_.value(node_, n_.reduced[i]);
    x = ir::compute_type(x.dtype) == dtype ? x : body_.convert(x, dtype);
    result.push_back(body_.broadcast_to_width(x, width));
  }
  if (map_) result[0] = map_(result[0], width);
  return result;
}

void Accumulators::step(const Carried& carried) {
  const int width = body_.lane_width();
  const std::vector<std::string> inputs = this->inputs();
  if (n_.stage == ReductionStage::kFinal) {
    merge(body_.writer(), carried, inputs, width);
    return;
  }
  std::map<std::string, std::string> with{{"x", inputs[0]}};
  if (inputs.size() > 1) with["y"] = inputs[1];
  if (facts_.kind == ir::ReductionKind::k_position)
    with["before"] = in_order_ ? none_text(width) : before_text(inputs[1], carried[1], width);
  for (size_t i = 0; i < count(); ++i) with["a" + std::to_string(i)] = carried[i];
  std::vector<std::string> texts;
  for (size_t i = 0; i < count(); ++i) texts.push_back(row_text(facts_.step[i], i, width, with));
  assign(body_.writer(), carried, texts, width);
}

std::string Accumulators::reset(const Carried& carried) {
  if (n_.reset == ir::kNone) return "";
  const int width = body_.lane_width();
  const std::string mask = body_.broadcast_to_width(body_.value(node_, n_.reset), width);
  for (size_t i = 0; i < count(); ++i)
    body_.writer().line("$s = $s ? $s : $s;", carried[i], mask_text(mask, DType::kBool, types_[i], width),
                        broadcast_text(row_text(facts_.identities[i], i, 1, {}), types_[i], width), carried[i]);
  return mask;
}

void Accumulators::step_scan(const Carried& carried) {
  reset(carried);
  step(carried);
  finish(carried, body_.lane_width(), body_.depth() - 1);
}

Accumulators::Carried Accumulators::block_names() const {
  Carried result = names();
  if (shifted()) result.push_back(body_.kernel().fresh("k"));
  return result;
}

void Accumulators::declare_block(Writer& writer, const Carried& into, const Carried& block, int width) const {
  if (!shifted()) {
    declare(writer, block, width);
    return;
  }
  writer.line("$t $s = $s;", Type{types_[0], width}, block[0], into[0]);
  declare_from(1, writer, block, width);
  writer.line("int $s = (int)$s;", block[3], width > 1 ? into[2] + ".s0" : into[2]);
}

void Accumulators::step_block(const Carried& block) {
  if (!shifted()) {
    step(block);
    return;
  }
  const int width = body_.lane_width();
  const std::string x = inputs()[0], d = body_.kernel().fresh("d");
  Writer& w = body_.writer();
  w.line("$s = $s == 0 ? $s : $s;", block[0], block[3], x, block[0]);
  w.line("$s += 1;", block[3]);
  w.line("const $t $s = $s - $s;", Type{types_[0], width}, d, x, block[0]);
  w.line("$s += $s;", block[1], d);
  w.line("$s = fma($s, $s, $s);", block[2], d, d, block[2]);
}

void Accumulators::merge_block(Writer& writer, const Carried& into, const Carried& block, int width) const {
  if (!shifted()) {
    merge(writer, into, block, width);
    return;
  }
  const Type type{types_[0], width};
  const std::string n = body_.kernel().fresh("n"), shift = body_.kernel().fresh("n"), q = body_.kernel().fresh("n");
  const std::string zero = broadcast_text("0", types_[0], width);
  writer.line("const $t $s = ($t)($s), $s = $s / $s, $s = $s - $s * $s;", type, n, type, block[3], shift, block[1], n, q,
              block[2], block[1], shift);
  writer.line("$s = $s + $s;", into[0], block[0], shift);
  writer.line("$s += $s < 0 ? $s : $s;", into[1], q, zero, q);
  writer.line("$s = $s;", into[2], n);
}

/// Merges the lanes of a vector when all lanes hold equally many elements: the mean is the mean of the lanes' means,
/// and the spread of the means is added to m2.
Accumulators::Carried Accumulators::across_equal_lanes(Writer& writer, const Carried& vector, int width) const {
  const auto sum = [&](std::string current) {
    for (int half = width / 2; half >= 1; half /= 2) {
      const std::string next = body_.kernel().fresh("a");
      const char *low = half == 1 ? ".s0" : ".lo", *high = half == 1 ? ".s1" : ".hi";
      writer.line("$t $s = $s$s + $s$s;", Type{types_[0], half}, next, current, low, current, high);
      current = next;
    }
    return current;
  };
  const std::string mean = sum(vector[0]), d = body_.kernel().fresh("d"), spread = body_.kernel().fresh("d");
  writer.line("$s /= $d;", mean, width);
  writer.line("const $t $s = $s - $s, $s = $s + $s * $s * $s;", Type{types_[0], width}, d, vector[0], mean, spread, vector[1],
              d, d, vector[2]);
  const std::string m2 = sum(spread), n = body_.kernel().fresh("a");
  writer.line("$t $s = $s.s0 * $d;", Type{types_[2], 1}, n, vector[2], width);
  return {mean, m2, n};
}

bool Accumulators::takes_two_passes() const { return n_.stage == ReductionStage::kWhole && facts_.two_passes; }

std::string Accumulators::declare_pass(Writer& writer, int pass, int width) const {
  const size_t p = static_cast<size_t>(pass);
  const auto& row = facts_.two_passes;
  const std::string name = body_.kernel().fresh("a"),
                    identity = row_text(row ? row->identity[p] : facts_.identities[0], 0, width, {});
  const Type type{types_[0], width};
  writer.line("$t $s = $s;", type, name,
              width > 1 && identity[0] != '(' ? "(" + type_name(type) + ")(" + identity + ")" : identity);
  return name;
}

void Accumulators::step_pass(int pass, const std::string& into, const std::string& centre) {
  if (!takes_two_passes()) {
    step({into});
    return;
  }
  const int width = body_.lane_width();
  std::map<std::string, std::string> with{{"x", inputs()[0]}, {"a0", into}};
  if (pass == 1) with["c"] = broadcast_text(centre, types_[0], width);
  body_.writer().line("$s = $s;", into, row_text(facts_.two_passes->step[pass], 0, width, with));
}

std::string Accumulators::merge_pass_text(int pass, const std::string& a, const std::string& b, int width) const {
  const auto& row = facts_.two_passes;
  return row_text(row ? row->merge[pass] : facts_.merge[0], 0, width, {{"a0", a}, {"b0", b}});
}

std::string Accumulators::centre_text(const std::string& first, const std::string& elements) const {
  return row_text(facts_.two_passes->centre, 0, 1, {{"a0", first}, {"n", elements}});
}

Accumulators::Carried Accumulators::after_passes(const std::string& centre, const std::string& second,
                                                 const std::string& elements) const {
  Carried result = {centre, second};
  if (count() > 2) result.push_back(elements);
  return result;
}

namespace {

// This maximum ignores NaN, so that a step is one instruction. The sum of the second pass then finds a NaN.
const ir::ReductionFacts kRowMaxPass{.name = "largest",
                                     .kind = ir::ReductionKind::k_monotone,
                                     .types = {ir::AccumulatorType::k_same},
                                     .identities = {"$lowest"},
                                     .step = {"$x > $a0 ? $x : $a0"},
                                     .merge = {"$b0 > $a0 ? $b0 : $a0"},
                                     .result_accumulator = {0},
                                     .element = {},
                                     .reference = {}};

}  // namespace

bool Accumulators::is_softmax() const {
  return facts_.kind == ir::ReductionKind::k_exponentials && n_.stage == ReductionStage::kWhole;
}

Accumulators Accumulators::row_max_pass(Map map) const { return {*this, kRowMaxPass, std::move(map)}; }

Accumulators Accumulators::exp_sum_pass(const std::string& row_max, const Map& load, const Map& save) const {
  const auto exponential = [this, row_max, load, save](const std::string& value, int width) {
    Writer& w = body_.writer();
    const Type type{types_[0], width};
    const std::string x = load ? load("", width) : value, e = body_.kernel().fresh("e");
    const auto lanes = [&](const std::string& text) { return broadcast_text(text, types_[0], width); };
    w.line("const $t $s = $s;", type, e,
           op_text("op_exp_falling($x)", type, {{"x", x + " - " + lanes(row_max)}}, body_.kernel().dialect().is_cpu));
    if (save) save(e, width);
    // The maximum itself counts as 1, even if it is infinite.
    const std::string one = body_.kernel().fresh("e");
    w.line("const $t $s = $s == $s ? $s : $s;", type, one, x, lanes(row_max), lanes("1"), e);
    return one;
  };
  Accumulators result(*this, ir::facts(ir::ReductionCode::k_sum), exponential);
  result.loads_ = !load;
  return result;
}

Accumulators::Carried Accumulators::after_softmax_passes(Writer& writer, const std::string& row_max,
                                                         const std::string& sum) const {
  const std::string result = body_.kernel().fresh("a");
  writer.line("const $t $s = $s == $s ? $s : $s;", Type{types_[0], 1}, result, sum, sum, row_max, sum);
  return {result, sum};
}

std::vector<std::string> Accumulators::merged(const Carried& a, const Carried& b, int width) const {
  std::map<std::string, std::string> with;
  for (size_t i = 0; i < count(); ++i) {
    with["a" + std::to_string(i)] = a[i];
    with["b" + std::to_string(i)] = b[i];
  }
  if (facts_.kind == ir::ReductionKind::k_position) with["before"] = before_text(b[1], a[1], width);
  std::vector<std::string> texts;
  for (size_t i = 0; i < count(); ++i) texts.push_back(row_text(facts_.merge[i], i, width, with));
  return texts;
}

void Accumulators::copy(Writer& writer, const Carried& to, const Carried& from) {
  for (size_t i = 0; i < to.size(); ++i) writer.line("$s = $s;", to[i], from[i]);
}

void Accumulators::merge(Writer& writer, const Carried& into, const Carried& from, int width) const {
  assign(writer, into, merged(into, from, width), width);
}

Accumulators::Carried Accumulators::across_lanes(Writer& writer, const Carried& vector, int width) const {
  if (shifted()) return across_equal_lanes(writer, vector, width);
  Carried current = vector;
  for (int half = width / 2; half >= 1; half /= 2) {
    Carried low, high, next = names();
    for (size_t i = 0; i < count(); ++i) {
      low.push_back(half == 1 ? lane_text(current[i], types_[i], 0) : current[i] + ".lo");
      high.push_back(half == 1 ? lane_text(current[i], types_[i], 1) : current[i] + ".hi");
    }
    const std::vector<std::string> texts = merged(low, high, half);
    for (size_t i = 0; i < count(); ++i) writer.line("$t $s = $s;", Type{types_[i], half}, next[i], texts[i]);
    current = next;
  }
  return current;
}

void Accumulators::finish(const Carried& carried, int width, int level) {
  for (const ir::Store& store : n_.stores) {
    const size_t i = static_cast<size_t>(
        n_.stage == ReductionStage::kPartial ? store.value : facts_.result_accumulator.at(static_cast<size_t>(store.value)));
    std::string text = carried.at(i);
    if (in_order_ && i == 1) {  // Nothing was greater than the identity, so all elements are equal to it.
      text = body_.kernel().fresh("n");
      const auto lanes = [&](const std::string& number) { return broadcast_text(number, types_[i], width); };
      body_.writer().line("const $t $s = $s == $s ? $s : $s;", Type{types_[i], width}, text, carried[i],
                          lanes(extreme(types_[i], true)), lanes("0"), carried[i]);
    }
    body_.set_result(node_, store, {text, types_[i], width, level, false});
  }
}

}  // namespace ocl::codegen
