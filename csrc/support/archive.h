// csrc/support/archive.h: writes values to a text, or reads them from it in the same order.
#pragma once

#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "csrc/support/error.h"

namespace ocl {

/// One function describes both directions: it passes each value to an archive, which writes or reads it. Each value ends with a
/// blank; before a string or a list stands its length. A damaged text is kInternal.
class Archive {
 public:
  Archive() : writes_(true) {}
  /// Reads `text`. what: the name of the text's contents in messages, such as "a stored plan".
  Archive(std::string text, std::string what) : text_(std::move(text)), what_(std::move(what)) {}
  const std::string& text() const { return text_; }
  bool writes() const { return writes_; }
  bool at_end() const { return at_ == text_.size(); }

  template <class... Values>
  void operator()(Values&... values) {
    (value(values), ...);
  }
  /// Writes or reads a list, each element by `each`.
  template <class List, class Each>
  void list(List& list, const Each& each) {
    size_t size = list.size();
    value(size);
    if (!writes_) {
      if (size > text_.size()) damaged();
      list.resize(size);
    }
    for (auto& element : list) each(element);
  }
  [[noreturn]] void damaged() const { fail(ErrorKind::kInternal, what_ + " cannot be read"); }

 private:
  template <class T>
    requires std::is_integral_v<T> || std::is_enum_v<T>
  void value(T& number) {
    if (writes_) {
      text_ += std::to_string(static_cast<int64_t>(number)) + ' ';
      return;
    }
    int64_t read = 0;
    const auto [end, problem] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), read);
    if (problem != std::errc() || end == text_.data() + text_.size()) damaged();
    number = static_cast<T>(read);
    if (static_cast<int64_t>(number) != read) damaged();
    at_ = static_cast<size_t>(end - text_.data()) + 1;
  }
  void value(std::string& string) {
    size_t size = string.size();
    value(size);
    if (writes_) {
      text_ += string + ' ';
      return;
    }
    if (size >= text_.size() - at_) damaged();
    string = text_.substr(at_, size);
    at_ += size + 1;
  }
  /// Floating-point numbers are written as their bits.
  void value(double& number) {
    auto bits = std::bit_cast<int64_t>(number);
    value(bits);
    number = std::bit_cast<double>(bits);
  }
  template <class T>
  void value(std::optional<T>& optional) {
    bool given = optional.has_value();
    value(given);
    if (given && !optional) optional.emplace();
    if (given) value(*optional);
  }
  template <class T, size_t N>
  void value(std::array<T, N>& array) {
    for (T& element : array) value(element);
  }
  template <class T>
  void value(std::vector<T>& vector) {
    list(vector, [&](T& element) { value(element); });
  }
  template <class First, class Second>
  void value(std::pair<First, Second>& pair) {
    (*this)(pair.first, pair.second);
  }
  template <class... Parts>
  void value(std::tuple<Parts...>& parts) {
    std::apply(*this, parts);
  }
  /// Values of other types: a function pass(Archive&, T&) in the namespace of T.
  template <class T>
    requires requires(Archive& archive, T& other) { pass(archive, other); }
  void value(T& other) {
    pass(*this, other);
  }

  bool writes_ = false;
  std::string text_, what_;
  size_t at_ = 0;
};

}  // namespace ocl
