// csrc/torch/recipe.cpp: checks, plans and cache entries of recipes.
#include "csrc/torch/recipe.h"

#include <algorithm>

#include "csrc/exec/make_plan.h"
#include "csrc/exec/stored_plan.h"
#include "csrc/ir/parse.h"
#include "csrc/ir/verify.h"
#include "csrc/support/archive.h"
#include "csrc/support/compiler_crash.h"
#include "csrc/support/hash.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/tensor_location.h"

namespace ocl::aten {

namespace {

constexpr char kFormat[] = "recipe 6";

}  // namespace

static void pass(Archive& archive, Recipe::Symbol& symbol) { archive(symbol.leaf, symbol.dim, symbol.is_stride); }
static void pass(Archive& archive, Recipe::Form& form) { archive(form.is_complex, form.is_conj, form.is_neg); }
static void pass(Archive& archive, Recipe::Source& source) {
  archive(source.kind, source.index, source.leaves, source.dtype, source.count, source.form);
}
static void pass(Archive& archive, Recipe::Result& result) { archive(result.kind, result.index, result.size, result.form); }
static void pass(Archive& archive, Recipe::Conditions& conditions) {
  archive(conditions.symbols, conditions.sizes, conditions.floats);
}
static void pass(Archive& archive, Recipe& recipe) {
  std::string format = kFormat;
  archive(format);
  if (format != kFormat) archive.damaged();
  archive(recipe.kind, recipe.reason);
  if (recipe.kind == Recipe::Kind::kPlan) archive(recipe.graph);
  archive(recipe.sources, recipe.symbols, recipe.formulas, recipe.results, recipe.returned, recipe.faults, recipe.generator,
          recipe.resizes, recipe.conditions);
}

namespace {

/// True if all symbols of the expression are among s0, s1, ... s<count - 1>.
bool uses_only(const ir::IndexExpr& e, size_t count) {
  if (e.op() == ir::IndexOp::kSymbol)
    return e.symbol().kind == ir::SymbolKind::kSize && static_cast<size_t>(e.symbol().index) < count;
  return std::all_of(e.args().begin(), e.args().end(), [&](const ir::IndexExpr& arg) { return uses_only(arg, count); });
}

}  // namespace

bool Recipe::Conditions::hold(const Leaves& leaves) const {
  const auto value_of = [&](ir::Symbol s) { return symbols[s.index].value(leaves); };
  const auto number_of = [&](int leaf) {
    return leaves[leaf].isInt() ? double(leaves[leaf].toInt()) : leaves[leaf].toDouble();
  };
  const auto compares = [&](const auto& condition) {
    const auto& [left, relation, right] = condition;
    const double a = left.value(number_of, value_of), b = right.value(number_of, value_of);
    switch (relation) {
      case Relation::kEqual:
        return a == b;
      case Relation::kNotEqual:
        return a != b;
      case Relation::kBelow:
        return a < b;
      case Relation::kAtMost:
        return a <= b;
      case Relation::kAbove:
        return a > b;
      case Relation::kAtLeast:
        return a >= b;
    }
    return false;
  };
  return std::all_of(floats.begin(), floats.end(), compares) &&
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
  Archive archive;
  pass(archive, const_cast<Recipe&>(recipe));  // An archive that writes changes nothing.
  return archive.text();
}

std::shared_ptr<Recipe> recipe_from(const std::string& entry) {
  auto recipe = std::make_shared<Recipe>();
  Archive archive(entry, "an entry of the cache");
  pass(archive, *recipe);
  if (!archive.at_end()) archive.damaged();
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
  const auto is_packed = [&](int leaf) { return leaf < 0 ? -1 - leaf < std::ssize(recipe.formulas) : is_number(leaf); };
  const auto is_size = [&](const Recipe::Symbol& symbol) {
    if (symbol.dim < 0) return is_leaf(symbol.leaf) && arguments.leaves[symbol.leaf].isInt();
    return is_tensor(symbol.leaf) && symbol.dim < arguments.leaves[symbol.leaf].toTensor().dim();
  };
  const auto all = [](const auto& values, const auto& test) { return std::all_of(values.begin(), values.end(), test); };
  if (recipe.kind > Recipe::Kind::kBadArguments || (recipe.kind == Recipe::Kind::kResizes) == recipe.resizes.empty())
    return false;
  if (recipe.sources.size() != graph.inputs.size() || static_cast<int>(recipe.symbols.size()) != graph.symbols) return false;
  if (recipe.generator >= 0 && !is_leaf(recipe.generator)) return false;
  for (const Source& source : recipe.sources) {
    if (source.kind == Source::Kind::kTensor && !is_tensor(source.index)) return false;
    if (source.kind == Source::Kind::kNumbers && !all(source.leaves, is_packed)) return false;
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
  const auto is_scalar = [&](int leaf) { return is_number(leaf) && !arguments.leaves[leaf].isTensor(); };
  const auto sizes_of = [](const std::vector<Recipe::Symbol>& symbols) {
    return [count = symbols.size()](const ir::IndexExpr& e) { return uses_only(e, count); };
  };
  const auto is_comparison = [&](const auto& comparison) {
    const auto is_formula = [&](const Formula& f) { return f.fits(is_scalar, sizes_of(conditions.symbols)); };
    return is_formula(std::get<0>(comparison)) && is_formula(std::get<2>(comparison));
  };
  size_t results = 0;
  for (const auto& [is_list, count] : recipe.returned) {
    if (count < 0 || (!is_list && count != 1)) return false;
    results += static_cast<size_t>(count);
  }
  for (const auto& [leaf, sizes, strides] : recipe.resizes)
    if (!is_tensor(leaf) || sizes.size() != strides.size()) return false;
  return results == recipe.results.size() && all(recipe.results, is_result) && all(recipe.symbols, is_size) &&
         all(conditions.symbols, is_size) &&
         all(recipe.formulas, [&](const Formula& f) { return f.fits(is_number, sizes_of(recipe.symbols)); }) &&
         all(conditions.sizes, sizes_of(conditions.symbols)) && all(conditions.floats, is_comparison);
}

}  // namespace ocl::aten
