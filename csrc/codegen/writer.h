// csrc/codegen/writer.h: collects the text of a kernel line by line, with indentation. A Writer is a local object.
//
// Placeholders of line() and open() are filled from the arguments in order:
//   $s  text that is already spelled: a name, an expression
//   $d  an integer
//   $t  a C type, from Type{dtype, width}
//   $c  a constant, exact, from Literal{scalar, dtype}: 0x1.8p+1f, NAN, -INFINITY, 5L
//   $$  a dollar sign
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "csrc/codegen/type.h"

namespace ocl::codegen {

class Writer {
 public:
  using Arg = std::variant<std::string, int64_t, Type, Literal>;

  template <typename... Args>
  void line(const char* format, Args&&... args) {
    write(format, {arg(std::forward<Args>(args))...});
  }
  /// Adds a line that ends in " {" and indents the following lines. An empty format opens a bare block.
  template <typename... Args>
  void open(const char* format, Args&&... args) {
    write(*format ? (std::string(format) + " {").c_str() : "{", {arg(std::forward<Args>(args))...});
    ++depth_;
  }
  /// Ends a block. `tail` follows the brace; " else {" opens a new block.
  void close(const char* tail = "");
  /// Adds the lines of `other`, indented to the current depth.
  void append(const Writer& other);
  bool empty() const { return lines_.empty(); }
  std::string str(int depth = 0) const;
  /// Number of characters without indentation.
  size_t length() const;

 private:
  static Arg arg(const char* text) { return std::string(text); }
  static Arg arg(std::string text) { return text; }
  static Arg arg(Type type) { return type; }
  static Arg arg(Literal literal) { return literal; }
  template <std::integral Int>
  static Arg arg(Int value) {
    return static_cast<int64_t>(value);
  }
  void write(const char* format, std::initializer_list<Arg> args);

  int depth_ = 0;
  std::vector<std::pair<int, std::string>> lines_;
};

/// Like Writer::line, but returns the text.
std::string format(const char* text, const std::vector<Writer::Arg>& args);

}  // namespace ocl::codegen
