// csrc/ir/scanner.h: reads the tokens of a line, and index expressions.
#pragma once

#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>

#include "csrc/ir/graph.h"
#include "csrc/support/error.h"

namespace ocl::ir {

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

  bool next_is(char letter) {
    blanks();
    return at_ < text_.size() && text_[at_] == letter;
  }
  /// Reads a letter and a number, as in "b3" or "v12".
  int numbered(char letter) {
    if (!next_is(letter)) error(std::string(1, letter) + "<number>");
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
    return IndexExpr::symbol(static_cast<SymbolKind>(kind), numbered(text_[at_]));
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

}  // namespace ocl::ir
