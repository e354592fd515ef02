// csrc/ir/parse.cpp: reads the text that print.cpp writes. The grammar is at the head of print.cpp.
#include "csrc/ir/parse.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

#include "csrc/ir/facts.h"
#include "csrc/ir/graph.h"
#include "csrc/support/error.h"

namespace ocl::ir {

namespace {

/// Reads the tokens of one line.
class Scanner {
 public:
  Scanner(const std::string& text, int line) : text_(text), line_(line) {}

  [[noreturn]] void error(const std::string& wanted) const {
    const std::string where = line_ ? "line " + std::to_string(line_) + ", " : "";
    fail(ErrorKind::kConfig, where + "column " + std::to_string(at_ + 1) + ": expected " + wanted + " in '" + text_ + "'");
  }

  bool end() {
    blanks();
    return at_ >= text_.size();
  }
  void expect_end() {
    if (!end()) error("the end");
  }

  /// Consumes `token` if it comes next. A word must match as a whole.
  bool take(const std::string& token) {
    blanks();
    if (text_.compare(at_, token.size(), token) != 0) return false;
    const size_t after = at_ + token.size();
    if (in_word(token.back()) && after < text_.size() && in_word(text_[after])) return false;
    at_ = after;
    return true;
  }
  void expect(const std::string& token) {
    if (!take(token)) error("'" + token + "'");
  }

  // Reads up to a blank or '['.
  std::string word() {
    blanks();
    const size_t begin = at_;
    while (at_ < text_.size() && !std::isspace(static_cast<unsigned char>(text_[at_])) && text_[at_] != '[') ++at_;
    if (begin == at_) error("a word");
    return text_.substr(begin, at_ - begin);
  }

  int64_t integer() {
    blanks();
    int64_t value = 0;
    const auto [end, problem] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (problem != std::errc()) error("an integer");
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }
  int number() {
    const int64_t value = integer();
    if (value < INT32_MIN || value > INT32_MAX) error("a small integer");
    return static_cast<int>(value);
  }

  double real() {
    if (take("nan")) return std::numeric_limits<double>::quiet_NaN();
    if (take("inf")) return INFINITY;
    if (take("-inf")) return -INFINITY;
    blanks();
    double value = 0;
    const auto [end, problem] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (problem != std::errc()) error("a number");
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  /// Reads a letter and a number, as in "b3" or "v12".
  int numbered(const char* letter) {
    blanks();
    if (text_.compare(at_, 1, letter) != 0) error(std::string(letter) + "<number>");
    ++at_;
    if (at_ >= text_.size() || !std::isdigit(static_cast<unsigned char>(text_[at_]))) error("a number");
    return number();
  }

  IndexExpr expr() {
    IndexExpr sum = take("-") ? product() * -1 : product();
    for (;;) {
      if (take("+"))
        sum = sum + product();
      else if (take("-"))
        sum = sum - product();
      else
        return sum;
    }
  }

  Shape list() {
    Shape result;
    expect("[");
    if (take("]")) return result;
    do {
      result.push_back(expr());
    } while (take(","));
    expect("]");
    return result;
  }

 private:
  static bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
  void blanks() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }

  IndexExpr product() {
    IndexExpr result = factor();
    for (;;) {
      if (take("*"))
        result = result * factor();
      else if (take("//"))
        result = floordiv(result, divisor());
      else if (take("%"))
        result = mod(result, divisor());
      else
        return result;
    }
  }

  IndexExpr divisor() {
    const IndexExpr d = factor();
    if (d.is_const(0)) error("a divisor that is not 0");
    return d;
  }

  IndexExpr factor() {
    if (take("(")) {
      const IndexExpr e = expr();
      expect(")");
      return e;
    }
    if (take("-")) return factor() * -1;
    if (take("min")) return pair(true);
    if (take("max")) return pair(false);
    blanks();
    if (at_ >= text_.size()) error("an expression");
    if (std::isdigit(static_cast<unsigned char>(text_[at_]))) {
      // Unsigned, because 2^63 may follow a minus.
      uint64_t value = 0;
      const auto [end, problem] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
      if (problem != std::errc()) error("an integer of 64 bits");
      at_ = static_cast<size_t>(end - text_.data());
      return IndexExpr(static_cast<int64_t>(value));
    }
    const size_t kind = std::string("sirv").find(text_[at_]);
    if (kind == std::string::npos) error("an expression");
    return IndexExpr::symbol(static_cast<SymbolKind>(kind), numbered(text_.substr(at_, 1).c_str()));
  }

  IndexExpr pair(bool is_min) {
    expect("(");
    const IndexExpr a = expr();
    expect(",");
    const IndexExpr b = expr();
    expect(")");
    return is_min ? min(a, b) : max(a, b);
  }

  std::string text_;
  int line_;
  size_t at_ = 0;
};

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
  void parse_line(std::string text, int line) {
    Origin origin;
    if (const size_t hash = text.find('#'); hash != std::string::npos) {
      const size_t at = text.find(" @ ", hash);
      if (hash + 2 <= text.size() && at != std::string::npos)
        origin = {text.substr(hash + 2, at - hash - 2), text.substr(at + 3)};
      text.resize(hash);
    }
    Scanner in(text, line);
    if (in.end()) return;
    if (in.take("symbol")) {
      finish_node();
      symbol(in);
    } else if (in.take("buffer")) {
      finish_node();
      buffer(in);
    } else if (in.take("inputs")) {
      finish_node();
      while (!in.end()) graph_.inputs.push_back(in.numbered("b"));
    } else if (in.take("node")) {
      finish_node();
      node_.emplace();
      node_->origin = std::move(origin);
      node(in);
    } else if (in.take("result")) {
      finish_node();
      result(in);
    } else if (node_) {
      node_line(in);
    } else {
      in.error("symbol, buffer, inputs, node or result");
    }
    in.expect_end();
  }

  void finish_node() {
    if (node_) graph_.add_node(std::move(*node_));
    node_.reset();
  }

  void symbol(Scanner& in) {
    if (in.numbered("s") != graph_.symbols) in.error("s" + std::to_string(graph_.symbols));
    ++graph_.symbols;
    Range range;
    range.low = in.integer();
    in.expect("..");
    range.high = in.integer();
    in.expect("divisor");
    range.divisor = in.integer();
    graph_.symbol_ranges.push_back(range);
  }

  void buffer(Scanner& in) {
    if (in.numbered("b") != static_cast<int>(graph_.buffers.size())) in.error("b" + std::to_string(graph_.buffers.size()));
    Buffer b;
    b.name = in.word();
    b.dtype = parse_dtype(in.word());
    b.sizes = in.list();
    if (in.take("strides")) b.strides = in.list();
    if (in.take("input")) {
      b.role = BufferRole::kInput;
      b.input = in.number();
    }
    b.is_parameter = in.take("parameter");
    b.donated = in.take("donated");
    graph_.add_buffer(std::move(b));
  }

  void node(Scanner& in) {
    Node& n = *node_;
    if (in.take("map")) {
      n.kind = NodeKind::kMap;
    } else if (const bool scan = in.take("scan"); scan || in.take("reduce")) {
      n.kind = scan ? NodeKind::kScan : NodeKind::kReduce;
      n.reduction = reduction_code(in.word());
      n.stage =
          in.take("partial") ? ReductionStage::kPartial : (in.take("final") ? ReductionStage::kFinal : ReductionStage::kWhole);
      if (n.stage == ReductionStage::kWhole) in.expect("whole");
    } else if (in.take("contract")) {
      n.kind = NodeKind::kContract;
    } else if (in.take("convolve")) {
      n.kind = NodeKind::kConvolve;
      ConvolveAttrs& c = n.convolve;
      c.kind = in.take("data") ? ConvolveKind::kData : (in.take("weight") ? ConvolveKind::kWeight : ConvolveKind::kForward);
      if (c.kind == ConvolveKind::kForward) in.expect("forward");
      for (auto [label, pair] :
           {std::pair("stride", &c.stride), std::pair("padding", &c.padding), std::pair("dilation", &c.dilation)}) {
        in.expect(label);
        for (int& value : *pair) value = in.number();
      }
      in.expect("groups");
      c.groups = in.number();
    } else if (in.take("attention")) {
      n.kind = NodeKind::kAttention;
      AttentionAttrs& a = n.attention;
      a.kind = in.take("key_value") ? AttentionKind::kKeyValue
                                    : (in.take("query") ? AttentionKind::kQuery : AttentionKind::kForward);
      if (a.kind == AttentionKind::kForward) in.expect("forward");
      for (auto [label, value] : {std::pair("scale", &a.scale), std::pair("dropout", &a.dropout)}) {
        in.expect(label);
        *value = in.real();
      }
      if (in.take("cap")) a.cap = in.real();
      a.causal = in.take("causal");
      a.masked = in.take("masked");
      if (in.take("blocks")) a.blocks = in.integer();
      a.nan_rows = in.take("nan_rows");
    } else if (in.take("fft")) {
      n.kind = NodeKind::kFft;
      n.fft.inverse = in.take("inverse");
      in.expect("scale");
      n.fft.scale = in.real();
      in.expect("root");
      n.fft.root = in.integer();
    } else if (in.take("sort")) {
      n.kind = NodeKind::kSort;
      SortAttrs& s = n.sort;
      s.step = in.take("count") ? SortStep::kCount : in.take("move") ? SortStep::kMove : SortStep::kBlocks;
      if (s.step == SortStep::kBlocks) in.expect("blocks");
      in.expect("block");
      s.block = in.integer();
      in.expect("keep");
      s.keep = in.integer();
      in.expect("shift");
      s.shift = in.number();
      in.expect("digits");
      s.digits = in.number();
      s.is_signed = in.take("signed");
    } else if (in.take("pack")) {
      n.kind = NodeKind::kPack;
    } else {
      in.expect("call");
      n.kind = NodeKind::kCall;
      n.call = in.number();
      if (in.take("waits_for")) n.waits_for = in.number();
    }
    n.sizes = in.list();
    if (in.take("over")) n.reduce_sizes = in.list();
    n.reduced_precision = in.take("reduced_precision");
  }

  void node_line(Scanner& in) {
    Node& n = *node_;
    if (in.take("reduce")) {
      while (!in.end() && n.reset == kNone)
        if (in.take("reset"))
          n.reset = in.numbered("v");
        else
          n.reduced.push_back(in.numbered("v"));
    } else if (in.take("operand")) {
      View view;
      view.buffer = in.numbered("b");
      view.sizes = in.list();
      in.expect("at");
      view.coords = in.list();
      n.operands.push_back(std::move(view));
    } else if (in.take("output")) {
      n.outputs.push_back(in.numbered("b"));
    } else if (in.take("store")) {
      Store store;
      store.buffer = in.numbered("b");
      store.index = in.list();
      if (in.take("maximum")) store.mode = StoreMode::kMaximum;
      in.expect("=");
      store.value = in.take("result") ? in.number() : in.numbered("v");
      if (in.take("if")) store.mask = in.numbered("v");
      n.stores.push_back(std::move(store));
    } else {
      if (in.numbered("v") != static_cast<int>(n.body.ops.size())) in.error("v" + std::to_string(n.body.ops.size()));
      in.expect("=");
      n.body.ops.push_back(op(in));
    }
  }

  static Op op(Scanner& in) {
    Op op;
    op.code = op_code(in.word());
    op.dtype = parse_dtype(in.word());
    switch (op.code) {
      case OpCode::kLoad:
        op.buffer = in.numbered("b");
        op.index = in.list();
        if (in.take("if")) op.args.push_back(in.numbered("v"));
        break;
      case OpCode::kConstant:
        op.constant.is_float = is_floating(op.dtype);
        if (op.constant.is_float)
          op.constant.f = in.real();
        else
          op.constant.i = in.integer();
        break;
      case OpCode::kIndex:
        op.index.push_back(in.expr());
        break;
      default:
        while (!in.end()) op.args.push_back(in.numbered("v"));
    }
    return op;
  }

  void result(Scanner& in) {
    Output output;
    output.buffer = in.numbered("b");
    output.sizes = in.list();
    in.expect("strides");
    output.strides = in.list();
    in.expect("offset");
    output.offset = in.expr();
    graph_.outputs.push_back(std::move(output));
  }

  Graph graph_;
  std::optional<Node> node_;
};

}  // namespace

IndexExpr parse_index(const std::string& text) {
  Scanner in(text, 0);
  const IndexExpr e = in.expr();
  in.expect_end();
  return e;
}

Graph parse_graph(const std::string& text) { return GraphParser().run(text); }

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
