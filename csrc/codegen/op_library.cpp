// csrc/codegen/op_library.cpp: makes instances of the functions of kernels/base: ops.cl, floats8.cl, special.cl, maths.cl,
// and of the series of special_series.def.
#include "csrc/codegen/op_library.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "csrc/codegen/expr.h"
#include "csrc/codegen/instructions.h"
#include "csrc/codegen/kernel_files.h"
#include "csrc/support/error.h"

namespace ocl::codegen {

namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// Splits a text into words and the text between them. Odd entries are words.
std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words{""};
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    const bool word = is_word(text[i]);
    while (end < text.size() && is_word(text[end]) == word) ++end;
    const bool odd = words.size() % 2 == 0;
    if (odd == word)
      words.back() += text.substr(i, end - i);
    else
      words.push_back(text.substr(i, end - i));
    i = end;
  }
  return words;
}

/// Removes comments, and lines that contain nothing else. A word in a comment must not count as a call.
std::string without_comments(const std::string& text) {
  std::string result;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (const size_t comment = line.find("//"); comment != std::string::npos) {
      line.resize(comment);
      line.resize(line.find_last_not_of(' ') + 1);
    }
    if (!line.empty() || end == begin) result += line + (end < text.size() ? "\n" : "");
    begin = end + 1;
  }
  return result;
}

/// Adds the functions of a file by name. A function is a paragraph, which ends at an empty line.
void add_paragraphs(const std::string& file, std::map<std::string, std::string>* result) {
  for (size_t begin = 0; begin < file.size();) {
    size_t end = file.find("\n\n", begin);
    if (end == std::string::npos) end = file.size();
    const std::string text = file.substr(begin, end - begin);
    const size_t define = text.find("OCL_INLINE ");
    if (define != std::string::npos && (define == 0 || text[define - 1] == '\n')) {
      const size_t open = text.find('(', define);
      size_t name = open;
      while (name > 0 && is_word(text[name - 1])) --name;
      result->emplace(text.substr(name, open - name), without_comments(text));
    }
    begin = end + 2;
  }
}

/// Returns a function that evaluates a series by Clenshaw's recurrence b = c_k + 2t a - b, in which `a` and `b` change roles
/// at each step. `terms` are separated by ", ", the highest first.
std::string series_function(const std::string& name, const std::string& terms) {
  std::string result = "OCL_INLINE T op_series_" + name + "(T t) {\n  const T u = t + t;\n  T a = REAL(0.0), b = REAL(0.0);\n";
  std::string before = "b", last = "a";
  size_t begin = 0;
  for (size_t end; (end = terms.find(", ", begin)) != std::string::npos; begin = end + 2, std::swap(before, last))
    result += "  " + before + " = u * " + last + " - " + before + " + REAL(" + terms.substr(begin, end - begin) + ");\n";
  return result + "  return t * " + last + " - " + before + " + REAL(" + terms.substr(begin) + ");\n}";
}

const std::map<std::string, std::string>& paragraphs() {
  static const auto table = [] {
    std::map<std::string, std::string> result;
    for (const char* file : {"base/ops", "base/floats8", "base/special", "base/maths"})
      add_paragraphs(kernel_file(file), &result);
#define OCL_SERIES(name, ...) result.emplace("op_series_" #name, series_function(#name, #__VA_ARGS__));
#include "kernels/base/special_series.def"
#undef OCL_SERIES
    return result;
  }();
  return table;
}

/// Splits op_<name>_<dtype>[x<width>] into name, dtype and width.
bool parse_call(const std::string& word, std::string* name, Type* type) {
  if (!word.starts_with("op_")) return false;
  const size_t cut = word.rfind('_');
  std::string suffix = word.substr(cut + 1);
  type->width = 1;
  if (const size_t x = suffix.find('x'); x != std::string::npos) {
    type->width = std::atoi(suffix.c_str() + x + 1);
    suffix = suffix.substr(0, x);
  }
  for (const DType dtype : {DType::kU8, DType::kI8, DType::kI16, DType::kI32, DType::kI64, DType::kF32, DType::kF64})
    if (suffix == ir::name(dtype)) {
      type->dtype = dtype;
      *name = word.substr(0, cut);
      return true;
    }
  return false;
}

DType signed_of_size(int bytes) {
  return bytes == 1 ? DType::kI8 : bytes == 2 ? DType::kI16 : bytes == 4 ? DType::kI32 : DType::kI64;
}

/// The first part of the names of functions that call a builtin for each lane of a vector: op_lanes_pow_f64x4.
constexpr std::string_view kByLane = "op_lanes_";

/// PoCL 3.1 chooses one branch of these builtins for all lanes of a vector of doubles: if one lane is 0, NaN or infinite,
/// others get wrong results, too.
bool needs_lanes(const std::string& builtin, Type type) {
  return type.dtype == DType::kF64 && type.width > 1 && (builtin == "fmod" || builtin == "pow");
}

class Instance {
 public:
  Instance(const std::string& text, Type type, bool is_cpu) : type_(type), is_cpu_(is_cpu), parts_(split_words(text)) {}

  std::string text() {
    std::string result;
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (i % 2 == 0) {
        result += parts_[i];
        continue;
      }
      const bool in_for = i >= 2 && parts_[i - 1].ends_with("(") && parts_[i - 2] == "for";
      if (parts_[i] == "REAL") {
        result += real(i);
        continue;
      }
      result += in_for ? parts_[i] : word(parts_[i]);
    }
    return result;
  }

 private:
  std::string lanes(const std::string& scalar) const { return scalar + (type_.width > 1 ? std::to_string(type_.width) : ""); }

  std::string word(const std::string& given) const {
    const std::string w = own_function(given, type_.dtype, is_cpu_);
    if (needs_lanes(w, type_)) return std::string(kByLane) + w + "_" + type_suffix(type_);
    const DType same = signed_of_size(ir::size_bytes(type_.dtype));
    const std::string integer = type_name({same, 1});
    const auto type_word = [&](const std::string& t) -> std::string {
      if (t == "T") return type_name(type_);
      if (t == "N") return lanes(integer);
      if (t == "U") return lanes("u" + integer);
      if (t == "W") return type_.width == 1 && lane_bytes(same) < 4 ? "uint" : lanes("u" + integer);
      if (t == "M") return lanes("int");
      static const std::set<std::string> types = {"char", "uchar", "short", "ushort", "int",
                                                  "uint", "long",  "ulong", "float",  "double"};
      return types.count(t) ? lanes(t) : "";
    };
    if (const std::string t = type_word(w); !t.empty()) return t;
    if (w == "OCL_LANES") return std::to_string(type_.width);
    for (const char* prefix : {"convert_", "as_"})
      if (w.starts_with(prefix))
        if (const std::string t = type_word(w.substr(std::string(prefix).size())); !t.empty()) return prefix + t;
    static const std::set<std::string> counted = {"vload_half", "vstore_half_rte"};
    if (counted.count(w) && type_.width > 1)
      return w == "vload_half" ? "vload_half" + std::to_string(type_.width)
                               : "vstore_half" + std::to_string(type_.width) + "_rte";
    if (w.starts_with("opi_")) return "op_" + w.substr(4) + "_" + type_suffix(type_);
    std::string name;
    Type fixed;
    if (w.starts_with("op_") && !parse_call(w, &name, &fixed)) return w + "_" + type_suffix(type_);
    return w;
  }

  /// Returns the constant in REAL(0.5), with its parentheses. Moves `i` behind it.
  std::string real(size_t& i) {
    std::string number;
    ++i;
    OCL_ASSERT(parts_[i].starts_with("("), "REAL needs a constant in kernels/base/ops.cl");
    std::string rest = parts_[i].substr(1);
    for (;; rest = parts_[i]) {
      const size_t end = rest.find(')');
      number += rest.substr(0, end);
      if (end != std::string::npos) {
        rest = rest.substr(end + 1);
        break;
      }
      OCL_ASSERT(++i < parts_.size(), "REAL( is not closed in kernels/base/ops.cl");
    }
    const bool is_number = number.find_first_of("0123456789") != std::string::npos;
    const std::string constant = number + (type_.dtype == DType::kF32 && is_number ? "f" : "");
    return (type_.width > 1 || number[0] == '-' ? "((" + type_name(type_) + ")(" + constant + "))" : constant) + rest;
  }

  Type type_;
  bool is_cpu_;
  std::vector<std::string> parts_;
};

class Collector {
 public:
  explicit Collector(const Dialect& dialect) : dialect_(dialect) {}

  void scan(const std::string& text) {
    const std::vector<std::string> words = split_words(text);
    for (size_t i = 1; i < words.size(); i += 2) {
      std::string name;
      Type type;
      if (!parse_call(words[i], &name, &type) || !seen_.insert(words[i]).second) continue;
      if (name.starts_with(kByLane)) {
        result_ += by_lane(name, name.substr(kByLane.size()), type, {"x", "y"}) + "\n\n";
        continue;
      }
      if (const auto own = by_instructions(name, type, dialect_)) {
        if (result_.find(own->helper) == std::string::npos) result_ += own->helper;
        result_ += own->function + "\n\n";
        continue;
      }
      const std::string integer = "opi_" + name.substr(3);
      const auto& table = paragraphs();
      auto found = table.end();
      if (!ir::is_floating(type.dtype)) found = table.find(integer);
      if (found == table.end()) found = table.find(name);
      OCL_ASSERT(found != table.end(),
                 "kernels/base/ops.cl, floats8.cl, special.cl and maths.cl have no function for " + words[i]);
      std::string instance = Instance(through_half(name, found->second), type, dialect_.is_cpu).text();
      scan(instance);
      if (name == "op_philox_lane" && type.width % 4 == 0) {  // Four lanes share a counter (base/philox_lanes.cl).
        instance.replace(instance.find(name), name.size(), "op_philox_each");
        instance += "\n\nPHILOX_LANES(" + std::to_string(type.width) + ", " +
                    (type.width > 4 ? std::to_string(type.width / 4) : "") + ")";
      }
      result_ += instance + "\n\n";
    }
  }
  std::string take() { return std::move(result_); }

 private:
  /// Returns the text of a function, or of its replacement on CPUs that convert halves.
  std::string through_half(const std::string& name, const std::string& text) const {
    constexpr std::string_view kPrefix = "op_half_";
    const auto found = paragraphs().find(std::string(kPrefix) + name.substr(3));
    if (!dialect_.is_cpu || !dialect_.converts_halves || found == paragraphs().end()) return text;
    std::string result = found->second;
    return result.replace(result.find(kPrefix), kPrefix.size(), "op_");
  }

  const Dialect& dialect_;
  std::set<std::string> seen_;
  std::string result_;
};

}  // namespace

std::string own_function(const std::string& name, DType dtype, bool is_cpu) {
  constexpr std::array<std::string_view, 5> kBranching = {"erf", "tanh", "op_gelu_erf", "op_gelu_erf_slope", "op_gelu_tanh"};
  if (dtype != DType::kF32 || (!is_cpu && std::ranges::find(kBranching, name) == kBranching.end())) return name;
  std::string own = "op_own_";
  own += name.starts_with("op_") ? name.substr(3) : name;
  return paragraphs().count(own) ? own : name;
}

std::string shortened(const std::string& row, DType rounded, const Dialect& dialect) {
  const size_t end = std::min(row.find('('), row.size()), begin = row.starts_with("op_") ? 3 : 0;
  const std::string name = (dialect.is_cpu ? "op_short_cpu_" : "op_short_") + row.substr(begin, end - begin);
  const bool found = name == kShortTanh ? rounded == DType::kBF16 && dialect.rounds_pairs : paragraphs().count(name) != 0;
  return found ? name + row.substr(end) : row;
}

std::string called_functions(const std::string& text, const Dialect& dialect) {
  Collector collector(dialect);
  collector.scan(text);
  const std::string functions = collector.take();
  if (functions.find("PHILOX_ROUNDS") == std::string::npos) return functions;
  std::string macros = kernel_file("base/philox");
  if (functions.find("PHILOX_LANES") != std::string::npos) macros += kernel_file("base/philox_lanes");
  return without_comments(macros) + "\n" + functions;
}

}  // namespace ocl::codegen
