// csrc/torch/recipe.cpp: checks, plans and cache entries of recipes. An entry is a sequence of values; `describe` lists them
// for both directions.
#include "csrc/torch/recipe.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "csrc/exec/make_plan.h"
#include "csrc/exec/stored_plan.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/verify.h"
#include "csrc/support/compiler_crash.h"
#include "csrc/support/hash.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/tensor_location.h"

namespace ocl::aten {

namespace {

constexpr char kFormat[] = "recipe 4";

/// Writes values one after the other, or reads them in the same order. Throws Error if a value cannot be read.
class Coder {
 public:
  Coder() = default;  // Makes a Coder that writes.
  explicit Coder(const std::string& bytes) : reads_(true), bytes_(bytes) {}

  template <class T>
  void value(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (reads_)
      std::memcpy(&value, take(sizeof value), sizeof value);
    else
      bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void flag(bool& flag) {
    auto byte = static_cast<uint8_t>(flag);
    value(byte);
    if (byte > 1) fail(ErrorKind::kInternal, "a flag is neither 0 nor 1");
    flag = byte == 1;
  }
  void text(std::string& text) {
    const size_t size = count(text.size());
    if (reads_)
      text.assign(take(size), size);
    else
      bytes_ += text;
  }
  /// Writes or reads the number of elements, then calls `element(T&)` for each element.
  template <class T, class Element>
  void list(std::vector<T>& values, const Element& element) {
    const size_t size = count(values.size());
    if (reads_) values.resize(size);
    for (T& value : values) element(value);
  }
  template <class T>
  void list(std::vector<T>& values) {
    list(values, [this](T& element) { value(element); });
  }

  void expect_end() const {
    if (at_ != bytes_.size()) fail(ErrorKind::kInternal, "it is longer than it should be");
  }
  std::string take_bytes() { return std::move(bytes_); }

 private:
  /// Writes or reads the number of elements, and returns it. Each element takes at least one byte, so a number larger than the
  /// rest of the entry is an error.
  size_t count(size_t size) {
    auto stored = static_cast<uint64_t>(size);
    value(stored);
    if (reads_ && stored > bytes_.size() - at_) fail(ErrorKind::kInternal, "it ends too early");
    return static_cast<size_t>(stored);
  }
  const char* take(size_t size) {
    if (size > bytes_.size() - at_) fail(ErrorKind::kInternal, "it ends too early");
    at_ += size;
    return bytes_.data() + at_ - size;
  }

  const bool reads_ = false;
  std::string bytes_;
  size_t at_ = 0;
};

void describe(Coder& coder, std::vector<Recipe::Symbol>& symbols) {
  coder.list(symbols, [&](Recipe::Symbol& symbol) {
    coder.value(symbol.leaf);
    coder.value(symbol.dim);
    coder.flag(symbol.is_stride);
  });
}

void describe(Coder& coder, ir::IndexExpr& size) {
  std::string text = size.str();
  coder.text(text);
  size = ir::parse_index(text);
}

void describe(Coder& coder, Recipe::Form& form) {
  for (bool* flag : {&form.is_complex, &form.is_conj, &form.is_neg}) coder.flag(*flag);
}

void describe(Coder& coder, Recipe& recipe) {
  std::string format = kFormat;
  coder.text(format);
  if (format != kFormat) fail(ErrorKind::kInternal, "it has another format");
  coder.value(recipe.kind);
  coder.text(recipe.reason);
  if (recipe.kind == Recipe::Kind::kPlan) {
    std::string text = recipe.graph.str();
    coder.text(text);
    recipe.graph = ir::parse_graph(text);
  }
  coder.list(recipe.sources, [&](Recipe::Source& source) {
    coder.value(source.kind);
    coder.value(source.index);
    coder.list(source.leaves);
    coder.value(source.dtype);
    coder.value(source.count);
    describe(coder, source.form);
  });
  describe(coder, recipe.symbols);
  coder.list(recipe.results, [&](Recipe::Result& result) {
    coder.value(result.kind);
    coder.value(result.index);
    describe(coder, result.size);
    describe(coder, result.form);
  });
  coder.list(recipe.returned, [&](std::pair<bool, int>& value) {
    coder.flag(value.first);
    coder.value(value.second);
  });
  coder.list(recipe.faults, [&](std::string& message) { coder.text(message); });
  coder.value(recipe.generator);
  coder.list(recipe.resizes, [&](auto& resize) {
    coder.value(std::get<0>(resize));
    coder.list(std::get<1>(resize));
    coder.list(std::get<2>(resize));
  });
  describe(coder, recipe.conditions.symbols);
  coder.list(recipe.conditions.sizes, [&](ir::IndexExpr& size) { describe(coder, size); });
  for (auto* values : {&recipe.conditions.floats, &recipe.conditions.others})
    coder.list(*values, [&](std::pair<int, double>& value) {
      coder.value(value.first);
      coder.value(value.second);
    });
}

/// True if all symbols of the expression are among s0, s1, ... s<count - 1>.
bool uses_only(const ir::IndexExpr& e, size_t count) {
  if (e.op() == ir::IndexOp::kSymbol)
    return e.symbol().kind == ir::SymbolKind::kSize && static_cast<size_t>(e.symbol().index) < count;
  return std::all_of(e.args().begin(), e.args().end(), [&](const ir::IndexExpr& arg) { return uses_only(arg, count); });
}

}  // namespace

bool Recipe::Conditions::hold(const Leaves& leaves) const {
  const auto value_of = [&](ir::Symbol s) { return symbols[s.index].value(leaves); };
  const auto is_value = [&](const auto& value) { return leaves[value.first].toDouble() == value.second; };
  return std::all_of(floats.begin(), floats.end(), is_value) && std::none_of(others.begin(), others.end(), is_value) &&
         std::all_of(sizes.begin(), sizes.end(), [&](const ir::IndexExpr& e) { return ir::evaluate(e, value_of) >= 0; });
}

namespace {

// To schedule fewer nodes takes no longer than to read a schedule. An optimizer has several nodes for each parameter.
constexpr size_t kLeastKept = 32;

}  // namespace

void make_plan(Recipe& recipe, const std::string& op, const runtime::BinaryStore& binaries, exec::PlanOptions options) {
  options.label = recipe.label;
  options.op = op.substr(0, op.find('.'));
  try {
    const ir::Graph graph = std::exchange(recipe.graph, {});
    runtime::Device& device = device_at(recipe.device);
    bind_faults(recipe, device);
    recipe.executor = std::make_shared<exec::Executor>(
        graph.nodes.size() < kLeastKept ? exec::make_plan(graph, device, binaries, options)
                                        : exec::find_or_make_plan(graph, hash_hex(graph.str()), device, binaries, options));
  } catch (const CompilerCrash& crash) {
    recipe.kind = Recipe::Kind::kNoKernels;
    recipe.reason = std::string("CompilerCrashError: ") + crash.what();
    recipe.lasting = false;
  }
}

std::string entry_of(const Recipe& recipe) {
  Recipe copy = recipe;
  Coder coder;
  describe(coder, copy);
  return coder.take_bytes();
}

std::shared_ptr<Recipe> recipe_from(const std::string& entry) {
  auto recipe = std::make_shared<Recipe>();
  Coder coder(entry);
  describe(coder, *recipe);
  coder.expect_end();
  ir::verify(recipe->graph, ir::Level::kGraph);
  return recipe;
}

bool fits(const Recipe& recipe, const EagerArguments& arguments) {
  using Source = Recipe::Source;
  using Result = Recipe::Result;
  const ir::Graph& graph = recipe.graph;
  const Recipe::Conditions& conditions = recipe.conditions;
  const auto is_leaf = [&](int leaf) { return leaf >= 0 && leaf < static_cast<int>(arguments.leaves.size()); };
  const auto is_tensor = [&](int leaf) {
    return is_leaf(leaf) && arguments.leaves[leaf].isTensor() && arguments.leaves[leaf].toTensor().defined();
  };
  const auto is_number = [&](int leaf) {
    if (!is_leaf(leaf)) return false;
    const c10::IValue& value = arguments.leaves[leaf];
    return value.isDouble() || value.isInt() || (is_tensor(leaf) && is_host_scalar(value.toTensor()));
  };
  const auto is_size = [&](const Recipe::Symbol& symbol) {
    return is_tensor(symbol.leaf) && symbol.dim >= 0 && symbol.dim < arguments.leaves[symbol.leaf].toTensor().dim();
  };
  const auto all = [](const auto& values, const auto& test) { return std::all_of(values.begin(), values.end(), test); };
  if (recipe.kind > Recipe::Kind::kBadArguments || (recipe.kind == Recipe::Kind::kResizes) == recipe.resizes.empty())
    return false;
  if (recipe.sources.size() != graph.inputs.size() || static_cast<int>(recipe.symbols.size()) != graph.symbols) return false;
  if (recipe.generator >= 0 && !is_leaf(recipe.generator)) return false;
  for (const Source& source : recipe.sources) {
    if (source.kind == Source::Kind::kTensor && !is_tensor(source.index)) return false;
    if (source.kind == Source::Kind::kNumbers && !all(source.leaves, is_number)) return false;
    if (source.kind == Source::Kind::kMoved || source.kind == Source::Kind::kConstant) return false;
    if (source.kind == Source::Kind::kFault && (source.index < 0 || source.index >= std::ssize(recipe.faults))) return false;
    if (source.kind > Source::Kind::kFault) return false;
    if (!c10::isFloatingType(source.dtype) && !c10::isIntegralType(source.dtype, /*includeBool=*/true)) return false;
  }
  const auto is_result = [&](const Result& result) {
    const auto is_below = [&](size_t count) { return result.index >= 0 && static_cast<size_t>(result.index) < count; };
    switch (result.kind) {
      case Result::Kind::kNone:
        return true;
      case Result::Kind::kOutput:
        return is_below(graph.outputs.size());
      case Result::Kind::kInput:
        return is_below(recipe.sources.size());
      case Result::Kind::kLeaf:
        return is_tensor(result.index);
      case Result::Kind::kSize:
        return uses_only(result.size, recipe.symbols.size());
    }
    return false;
  };
  const auto is_float = [&](const auto& value) { return is_leaf(value.first) && arguments.leaves[value.first].isDouble(); };
  size_t results = 0;
  for (const auto& [is_list, count] : recipe.returned) {
    if (count < 0 || (!is_list && count != 1)) return false;
    results += static_cast<size_t>(count);
  }
  for (const auto& [leaf, sizes, strides] : recipe.resizes)
    if (!is_tensor(leaf) || sizes.size() != strides.size()) return false;
  return results == recipe.results.size() && all(recipe.results, is_result) && all(recipe.symbols, is_size) &&
         all(conditions.symbols, is_size) &&
         all(conditions.sizes, [&](const ir::IndexExpr& e) { return uses_only(e, conditions.symbols.size()); }) &&
         all(conditions.floats, is_float) && all(conditions.others, is_float);
}

}  // namespace ocl::aten
