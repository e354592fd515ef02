// csrc/codegen/shared_function.cpp: see shared_function.h.
#include "csrc/codegen/shared_function.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <string_view>

namespace ocl::codegen {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }

/// A text without the integers that may become parameters.
struct Pattern {
  std::vector<std::string> parts;  // What stands between the integers: one part more than there are integers.
  std::vector<int64_t> integers;
};

/// Returns the value of a word that is a decimal integer of type int.
std::optional<int64_t> integer_of(std::string_view word) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool whole = error == std::errc() && end == word.data() + word.size();
  return whole && value <= std::numeric_limits<int32_t>::max() ? std::optional(value) : std::nullopt;
}

Pattern pattern_of(const std::string& text) {
  Pattern pattern{{""}, {}};
  bool is_directive = false;  // The line begins with '#'.
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (!is_word(text[at])) {
      if (text[at] == '#' && (at == 0 || text[at - 1] == '\n')) is_directive = true;
      if (text[at] == '\n') is_directive = false;
      pattern.parts.back() += text[at++];
      continue;
    }
    // A word is a name, a number, or a number with a sign in its exponent: 0x1.8p-1f.
    const bool is_number = std::isdigit(static_cast<unsigned char>(text[at]));
    while (at < text.size() && (is_word(text[at]) || (is_number && (text[at] == '-' || text[at] == '+') &&
                                                      (text[at - 1] == 'p' || text[at - 1] == 'P'))))
      ++at;
    const std::string_view word = std::string_view(text).substr(begin, at - begin);
    const bool is_length = begin > 0 && text[begin - 1] == '[' && at < text.size() && text[at] == ']';
    const std::optional<int64_t> value = is_number && !is_directive && !is_length ? integer_of(word) : std::nullopt;
    if (!value) {
      pattern.parts.back() += word;
      continue;
    }
    pattern.integers.push_back(*value);
    pattern.parts.emplace_back();
  }
  return pattern;
}

/// Returns k > 0 if `values` are k times `unit`, otherwise 0.
int64_t multiple(const std::vector<int64_t>& values, const std::vector<int64_t>& unit) {
  if (unit[0] == 0 || values[0] % unit[0] != 0) return 0;
  const int64_t k = values[0] / unit[0];
  for (size_t u = 0; u < values.size(); ++u)
    if (values[u] != k * unit[u]) return 0;
  return k;
}

/// Returns the text of an integer, which is values[u] in the text of user u. Adds a parameter if no other can express it.
std::string spelled(const std::vector<int64_t>& values, SharedFunction& function) {
  if (std::ranges::all_of(values, [&](int64_t value) { return value == values[0]; })) return std::to_string(values[0]);
  for (size_t p = 0; p < function.values.size(); ++p)
    if (const int64_t k = multiple(values, function.values[p]))
      return k == 1 ? SharedFunction::parameter(p) : "(" + std::to_string(k) + " * " + SharedFunction::parameter(p) + ")";
  function.values.push_back(values);
  return SharedFunction::parameter(function.values.size() - 1);
}

}  // namespace

std::vector<SharedFunction> share_functions(const std::vector<std::string>& texts) {
  std::vector<Pattern> patterns;
  std::map<std::vector<std::string>, size_t> known;  // Parts -> index of the function.
  std::vector<SharedFunction> functions;
  for (size_t t = 0; t < texts.size(); ++t) {
    patterns.push_back(pattern_of(texts[t]));
    const auto [found, is_new] = known.try_emplace(patterns[t].parts, functions.size());
    if (is_new) functions.emplace_back();
    functions[found->second].users.push_back(t);
  }
  for (SharedFunction& function : functions) {
    const Pattern& first = patterns[function.users[0]];
    function.text = first.parts[0];
    for (size_t i = 0; i < first.integers.size(); ++i) {
      std::vector<int64_t> values;
      for (const size_t user : function.users) values.push_back(patterns[user].integers[i]);
      function.text += spelled(values, function) + first.parts[i + 1];
    }
  }
  return functions;
}

}  // namespace ocl::codegen
