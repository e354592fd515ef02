// csrc/codegen/same_value.cpp: compares the expression trees of two ops.
#include "csrc/codegen/same_value.h"

#include <algorithm>
#include <set>

#include "csrc/ir/facts.h"

namespace ocl::codegen {

namespace {

class Comparison {
 public:
  Comparison(const Node& a, const Node& b) : a_(a), b_(b) {}

  bool same(int i, int j) {
    if (!compared_.insert({i, j}).second) return true;
    const Op &x = a_.body.ops[i], &y = b_.body.ops[j];
    if (x.code != y.code || x.dtype != y.dtype || x.buffer != y.buffer || x.args.size() != y.args.size()) return false;
    if (x.code == OpCode::kConstant && !(x.constant == y.constant)) return false;
    if (x.index != y.index) return false;
    // An index with v* cannot be compared, because op numbers have different meanings in different bodies.
    if (std::ranges::any_of(x.index, [](const ir::IndexExpr& e) { return e.uses(ir::SymbolKind::kValue); })) return false;
    for (size_t k = 0; k < x.args.size(); ++k)
      if (!same(x.args[k], y.args[k])) return false;
    return true;
  }

 private:
  const Node &a_, &b_;
  // Pairs that were compared before. The first unequal pair ends the comparison.
  std::set<std::pair<int, int>> compared_;
};

}  // namespace

bool same_value(const Node& a, int i, const Node& b, int j) { return Comparison(a, b).same(i, j); }

std::vector<int> exponentials(const ir::Graph& graph, const Node& softmax, const Node& node) {
  const auto largest = std::ranges::find(softmax.stores, 0, &ir::Store::value);
  std::vector<int> result;
  if (largest == softmax.stores.end()) return result;
  const int element = softmax.reduced[0];
  const ir::DType dtype = ir::accumulator_dtype(softmax.reduction, 0, softmax.body.ops[element].dtype);
  if (graph.buffers[largest->buffer].dtype != dtype) return result;
  const auto& ops = node.body.ops;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].code != OpCode::k_exp) continue;
    const Op& difference = ops[ops[i].args[0]];
    if (difference.code != OpCode::k_sub || difference.dtype != dtype || ops[i].dtype != dtype) continue;
    const Op& load = ops[difference.args[1]];
    if (load.code != OpCode::kLoad || load.buffer != largest->buffer || !load.args.empty()) continue;
    if (load.index == largest->index && same_value(softmax, element, node, difference.args[0]))
      result.push_back(static_cast<int>(i));
  }
  return result;
}

}  // namespace ocl::codegen
