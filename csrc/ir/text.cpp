// csrc/ir/text.cpp: graphs as text, and back. One function for each kind of line writes it and reads it. The grammar by
// example:
//   symbol s0 1..1024 divisor 8
//   buffer b0 in0 f32 [s0, 64] strides [64, 1] input 0 parameter donated
//   node map [s0, 64]  # aten.relu.default @ model.py:61
//     v0 = load f32 b0[i0, i1] if v3
//     v1 = constant f32 0.5
//     v2 = index i64 i0*64 + i1
//     v4 = add f32 v0 v1
//     store b1[i0, i1] = v4
//     store b3[v5] maximum= v6 if v3
//   node reduce sum whole [s0] over [64]
//     ...
//     reduce v0
//     store b2[i0] = result 0
//   node scan sum whole [s0] over [64]
//     ...
//     reduce v0 reset v2
//     store b2[i0, r0] = result 0 if v1
//     store b4[i0, v5] sum= result 0
//   node contract [1, s0, 8] over [64] reduced_precision
//     operand b0 [1, s0, 64] at [i1, i2]
//     output b3
//   node convolve forward stride 1 1 padding 0 0 dilation 1 1 groups 1 [..] over []
//   node attention forward scale 0.125 dropout 0.0 cap 20.0 causal masked blocks 16 nan_rows [..] over []
//   node fft complex inverse scale 0.25 root 64 [..] over []
//   node sort count block 4096 keep 0 shift 8 digits 1 signed [..] over []
//   node call 3 [] over []
//   node call 4 waits_for 3 [] over []
//   result b1 [s0, 64] strides [64, 1] offset 0
#include <charconv>
#include <cmath>
#include <span>

#include "csrc/ir/facts.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/scanner.h"

namespace ocl::ir {
namespace {

std::string text_of(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  // to_chars gives the shortest text that reads back exactly.
  const std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

/// Writes values to the end of a text, with a blank before each, or reads them from a line. Writing changes no value.
class Line {
 public:
  explicit Line(std::string& out) : out_(&out) {}
  explicit Line(Scanner& in) : in_(&in) {}
  bool reads() const { return in_ != nullptr; }

  /// Makes the next value follow without a blank.
  Line& join() {
    joined_ = true;
    return *this;
  }
  void word(const char* text) { in_ ? in_->expect(text) : put(text); }
  /// A word that is there if `set`. Returns whether it is.
  bool flag(const char* text, bool set) {
    if (in_) return in_->take(text);
    if (set) put(text);
    return set;
  }
  void operator()(const char* text, bool& set) { set = flag(text, set); }
  /// A word and the values after it.
  template <class... Values>
  void operator()(const char* text, Values&... values) {
    word(text);
    ((*this)(values), ...);
  }
  template <class T>
    requires std::is_integral_v<T>
  void operator()(T& value) {
    if (!in_)
      put(std::to_string(value));
    else if constexpr (sizeof(T) == sizeof(int64_t))
      value = in_->integer();
    else
      value = in_->number();
  }
  void operator()(double& value) { in_ ? void(value = in_->real()) : put(text_of(value)); }
  void operator()(IndexExpr& e) { in_ ? void(e = in_->expr()) : put(e.str()); }
  void operator()(Shape& list) {
    if (in_) {
      list = in_->list();
      return;
    }
    std::string text;
    for (const IndexExpr& e : list) text += (text.empty() ? "" : ", ") + e.str();
    put("[" + text + "]");
  }
  /// A letter and a number: b3 (buffer), v3 (value).
  void operator()(char letter, int& number) {
    in_ ? void(number = in_->numbered(letter)) : put(letter + std::to_string(number));
  }
  void operator()(char letter, std::vector<int>& numbers) {
    for (size_t i = 0; in_ ? in_->next_is(letter) : i < numbers.size(); ++i) {
      if (in_) numbers.push_back(kNone);
      (*this)(letter, numbers[i]);
    }
  }
  /// A word that stands for a value.
  template <class T, class Name, class Parse>
  void named(T& value, const Name& name, const Parse& parse) {
    in_ ? void(value = parse(in_->word())) : put(name(value));
  }
  /// One of several words: the names of an enum's values.
  template <class T>
  void choice(T& value, std::span<const char* const> names) {
    if (!in_) return put(names[static_cast<size_t>(value)]);
    std::string wanted;
    for (size_t i = 0; i < names.size(); ++i) {
      if (in_->take(names[i])) return void(value = static_cast<T>(i));
      wanted += (i > 0 ? " or " : "") + std::string(names[i]);
    }
    in_->error(wanted);
  }

 private:
  void put(const std::string& text) {
    if (!joined_ && !out_->empty() && out_->back() != '\n' && out_->back() != ' ') *out_ += ' ';
    joined_ = false;
    *out_ += text;
  }

  std::string* out_ = nullptr;
  Scanner* in_ = nullptr;
  bool joined_ = false;
};

// What follows the first word of each line.

void pass(Line& line, DType& dtype) {
  line.named(dtype, [](DType t) { return name(t); }, parse_dtype);
}

void pass(Line& line, Range& range) {
  line(range.low);
  line.join().word("..");
  line.join()(range.high);
  line("divisor", range.divisor);
}

void pass(Line& line, BufferId& id) { line('b', id); }
void pass(Line& line, std::vector<BufferId>& ids) { line('b', ids); }

void pass(Line& line, Buffer& b) {
  line.named(b.name, [](const std::string& text) { return text; }, [](const std::string& text) { return text; });
  pass(line, b.dtype);
  line(b.sizes);
  if (line.flag("strides", b.strides.has_value())) line(b.strides ? *b.strides : b.strides.emplace());
  if (line.flag("input", b.role == BufferRole::kInput)) {
    b.role = BufferRole::kInput;
    line(b.input);
  }
  line("parameter", b.is_parameter);
  line("donated", b.donated);
}

void pass(Line& line, ConvolveAttrs& c) {
  static constexpr const char* kKinds[] = {"forward", "data", "weight"};
  line.choice(c.kind, kKinds);
  line("stride", c.stride[0], c.stride[1]);
  line("padding", c.padding[0], c.padding[1]);
  line("dilation", c.dilation[0], c.dilation[1]);
  line("groups", c.groups);
}

void pass(Line& line, AttentionAttrs& a) {
  static constexpr const char* kKinds[] = {"forward", "query", "key_value", "gradients"};
  line.choice(a.kind, kKinds);
  line("scale", a.scale);
  line("dropout", a.dropout);
  if (line.flag("cap", a.cap > 0)) line(a.cap);
  line("causal", a.causal);
  line("masked", a.masked);
  if (line.flag("blocks", a.blocks > 0)) line(a.blocks);
  line("nan_rows", a.nan_rows);
}

void pass(Line& line, FftAttrs& fft) {
  static constexpr const char* kForms[] = {"complex", "from_real", "to_real"};
  line.choice(fft.form, kForms);
  line("inverse", fft.inverse);
  line("scale", fft.scale);
  line("root", fft.root);
}

void pass(Line& line, SortAttrs& s) {
  static constexpr const char* kSteps[] = {"count", "move", "blocks"};
  line.choice(s.step, kSteps);
  line("block", s.block);
  line("keep", s.keep);
  line("shift", s.shift);
  line("digits", s.digits);
  line("signed", s.is_signed);
  if (line.flag("end", s.end > 0)) line(s.end);
}

void pass(Line& line, Node& n) {
  static constexpr const char* kKinds[] = {"map",       "reduce", "scan", "contract", "convolve",
                                           "attention", "fft",    "sort", "pack",     "call"};
  static constexpr const char* kStages[] = {"whole", "partial", "final"};
  line.choice(n.kind, kKinds);
  if (is_reduction(n)) {
    line.named(n.reduction, [](ReductionCode code) { return facts(code).name; }, reduction_code);
    line.choice(n.stage, kStages);
  }
  if (n.kind == NodeKind::kConvolve) pass(line, n.convolve);
  if (n.kind == NodeKind::kAttention) pass(line, n.attention);
  if (n.kind == NodeKind::kFft) pass(line, n.fft);
  if (n.kind == NodeKind::kSort) pass(line, n.sort);
  if (n.kind == NodeKind::kCall) line(n.call);
  if (line.flag("waits_for", n.waits_for != kNone)) line(n.waits_for);
  line(n.sizes);
  if (line.flag("over", n.kind != NodeKind::kMap || !n.reduce_sizes.empty())) line(n.reduce_sizes);
  line("reduced_precision", n.reduced_precision);
}

void pass(Line& line, Op& op) {
  line.word("=");
  line.named(op.code, [](OpCode code) { return facts(code).name; }, op_code);
  pass(line, op.dtype);
  switch (op.code) {
    case OpCode::kLoad:
      line('b', op.buffer);
      line.join()(op.index);
      if (!line.flag("if", !op.args.empty())) break;
      op.args.resize(1);
      line('v', op.args[0]);
      break;
    case OpCode::kConstant:
      if (line.reads()) op.constant.is_float = is_floating(op.dtype);
      op.constant.is_float ? line(op.constant.f) : line(op.constant.i);
      break;
    case OpCode::kIndex:
      if (line.reads()) op.index.resize(1);
      op.index.empty() ? line.word("?") : line(op.index[0]);
      break;
    default:
      line('v', op.args);
  }
}

void pass(Line& line, std::vector<int>& reduced, int& reset) {
  line('v', reduced);
  if (line.flag("reset", reset != kNone)) line('v', reset);
}

void pass(Line& line, View& view) {
  line('b', view.buffer);
  line(view.sizes);
  line("at", view.coords);
}

void pass(Line& line, Store& store, bool is_result) {
  line('b', store.buffer);
  line.join()(store.index);
  if (line.flag("maximum", store.mode == StoreMode::kMaximum)) {
    store.mode = StoreMode::kMaximum;
    line.join();
  } else if (line.flag("sum", store.mode == StoreMode::kAdd)) {
    store.mode = StoreMode::kAdd;
    line.join();
  }
  line.word("=");
  line.flag("result", is_result) ? line(store.value) : line('v', store.value);
  if (line.flag("if", store.mask != kNone)) line('v', store.mask);
}

void pass(Line& line, Output& output) {
  line('b', output.buffer);
  line(output.sizes);
  line("strides", output.strides);
  line("offset", output.offset);
}

/// Returns the origin as a comment for the end of a line. It must not contain a line break.
std::string comment(const Origin& origin) {
  if (origin.op.empty() && origin.source.empty()) return "";
  std::string text = origin.op + " @ " + origin.source;
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  return "  # " + text;
}

std::string printed(Graph& graph, bool origins) {
  std::string out;
  Line line(out);
  const auto print = [&](const std::string& begin, auto&&... values) {
    out += begin;
    pass(line, values...);
    out += "\n";
  };
  for (int i = 0; i < graph.symbols; ++i) {
    Range range = static_cast<size_t>(i) < graph.symbol_ranges.size() ? graph.symbol_ranges[i] : Range{};
    print("symbol s" + std::to_string(i), range);
  }
  for (size_t i = 0; i < graph.buffers.size(); ++i) print("buffer b" + std::to_string(i), graph.buffers[i]);
  if (!graph.inputs.empty()) print("inputs", graph.inputs);
  for (Node& node : graph.nodes) {
    print("node", node);
    if (origins) out.insert(out.size() - 1, comment(node.origin));
    for (size_t i = 0; i < node.body.ops.size(); ++i) print("  v" + std::to_string(i), node.body.ops[i]);
    if (is_reduction(node)) print("  reduce", node.reduced, node.reset);
    for (View& view : node.operands) print("  operand", view);
    for (BufferId& buffer : node.outputs) print("  output", buffer);
    for (Store& store : node.stores) print("  store", store, is_reduction(node));
  }
  for (Output& output : graph.outputs) print("result", output);
  return out;
}

class GraphParser {
 public:
  Graph run(const std::string& text) {
    int line = 0;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      ++line;
      try {
        parse_line(text.substr(begin, end - begin), line);
      } catch (const Error& error) {
        // Adds the line to errors about an unknown op, reduction or dtype.
        const std::string message = error.what();
        fail(ErrorKind::kConfig, message.starts_with("line ") ? message : "line " + std::to_string(line) + ": " + message);
      }
      begin = end + 1;
    }
    finish_node();
    return std::move(graph_);
  }

 private:
  void parse_line(std::string text, int number) {
    Origin origin;
    if (const size_t hash = text.find('#'); hash != std::string::npos) {
      const size_t at = text.find(" @ ", hash);
      if (hash + 2 <= text.size() && at != std::string::npos)
        origin = {text.substr(hash + 2, at - hash - 2), text.substr(at + 3)};
      text.resize(hash);
    }
    Scanner in(text, number);
    if (in.end()) return;
    Line line(in);
    if (!(node_ && node_line(in, line))) {
      finish_node();
      graph_line(in, line, std::move(origin));
    }
    in.expect_end();
  }

  void finish_node() {
    if (node_) graph_.add_node(std::move(*node_));
    node_.reset();
  }

  void graph_line(Scanner& in, Line& line, Origin origin) {
    if (in.take("symbol")) {
      in.expect("s" + std::to_string(graph_.symbols++));
      pass(line, graph_.symbol_ranges.emplace_back());
    } else if (in.take("buffer")) {
      in.expect("b" + std::to_string(graph_.buffers.size()));
      Buffer buffer;
      pass(line, buffer);
      graph_.add_buffer(std::move(buffer));
    } else if (in.take("inputs")) {
      pass(line, graph_.inputs);
    } else if (in.take("node")) {
      node_.emplace().origin = std::move(origin);
      pass(line, *node_);
    } else if (in.take("result")) {
      pass(line, graph_.outputs.emplace_back());
    } else {
      in.error("symbol, buffer, inputs, node or result");
    }
  }

  bool node_line(Scanner& in, Line& line) {
    Node& n = *node_;
    if (in.take("reduce")) {
      pass(line, n.reduced, n.reset);
    } else if (in.take("operand")) {
      pass(line, n.operands.emplace_back());
    } else if (in.take("output")) {
      pass(line, n.outputs.emplace_back());
    } else if (in.take("store")) {
      pass(line, n.stores.emplace_back(), is_reduction(n));
    } else if (in.next_is('v')) {
      in.expect("v" + std::to_string(n.body.ops.size()));
      pass(line, n.body.ops.emplace_back());
    } else {
      return false;
    }
    return true;
  }

  Graph graph_;
  std::optional<Node> node_;
};

}  // namespace

std::string Graph::str(bool origins) const { return printed(const_cast<Graph&>(*this), origins); }

Graph parse_graph(const std::string& text) { return GraphParser().run(text); }

IndexExpr parse_index(const std::string& text) {
  Scanner in(text, 0);
  const IndexExpr e = in.expr();
  in.expect_end();
  return e;
}

void pass(Archive& archive, IndexExpr& expression) {
  bool constant = expression.is_const();
  archive(constant);
  int64_t number = constant && archive.writes() ? expression.constant() : 0;
  std::string string = constant || !archive.writes() ? "" : expression.str();
  if (constant)
    archive(number);
  else
    archive(string);
  if (!archive.writes()) expression = constant ? IndexExpr(number) : parse_index(string);
}

void pass(Archive& archive, Graph& graph) {
  std::string text = archive.writes() ? graph.str() : "";
  archive(text);
  if (!archive.writes()) graph = parse_graph(text);
}

}  // namespace ocl::ir
