// csrc/torch/eager_conditions.cpp: evaluates the conditions of a plan for a call.
#include "csrc/torch/eager_conditions.h"

#include <algorithm>

namespace ocl::aten {

namespace {

/// True if all symbols of the expression are among s0, s1, ... s<count - 1>.
bool uses_only(const ir::IndexExpr& e, size_t count) {
  if (e.op() == ir::IndexOp::kSymbol)
    return e.symbol().kind == ir::SymbolKind::kSize && static_cast<size_t>(e.symbol().index) < count;
  return std::all_of(e.args().begin(), e.args().end(), [&](const ir::IndexExpr& arg) { return uses_only(arg, count); });
}

}  // namespace

bool EagerConditions::hold(const EagerArguments& arguments) const {
  const auto size_of = [&](ir::Symbol s) {
    const auto& [leaf, dim] = symbols[s.index];
    return arguments.leaves[leaf].toTensor().size(dim);
  };
  return std::all_of(floats.begin(), floats.end(),
                     [&](const auto& value) { return arguments.leaves[value.first].toDouble() == value.second; }) &&
         std::all_of(sizes.begin(), sizes.end(), [&](const ir::IndexExpr& e) { return ir::evaluate(e, size_of) >= 0; });
}

bool EagerConditions::fit(const EagerArguments& arguments) const {
  const auto is_leaf = [&](int leaf) { return leaf >= 0 && leaf < static_cast<int>(arguments.leaves.size()); };
  const auto has_size = [&](const std::pair<int, int>& symbol) {
    if (!is_leaf(symbol.first) || !arguments.leaves[symbol.first].isTensor()) return false;
    const at::Tensor& tensor = arguments.leaves[symbol.first].toTensor();
    return tensor.defined() && symbol.second >= 0 && symbol.second < tensor.dim();
  };
  return std::all_of(symbols.begin(), symbols.end(), has_size) &&
         std::all_of(sizes.begin(), sizes.end(), [&](const ir::IndexExpr& e) { return uses_only(e, symbols.size()); }) &&
         std::all_of(floats.begin(), floats.end(),
                     [&](const auto& value) { return is_leaf(value.first) && arguments.leaves[value.first].isDouble(); });
}

}  // namespace ocl::aten
