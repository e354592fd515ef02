// csrc/ir/index_tree.h: the trees that index expressions are. They are immutable and cheap to copy. index_expr.h computes with
// them; here nothing is folded.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ocl::ir {

enum class SymbolKind : uint8_t {
  kSize,    // s0: a size of the model, which is an integer argument of the graph.
  kLoop,    // i0: a loop of the node, or a dimension of a view.
  kReduce,  // r0: a reduction loop of the node.
  kValue,   // v4: the value of op 4 of the body, used as an index.
};

struct Symbol {
  SymbolKind kind = SymbolKind::kSize;
  int index = 0;
  auto operator<=>(const Symbol&) const = default;
};

enum class IndexOp : uint8_t { kConst, kSymbol, kAdd, kMul, kFloorDiv, kMod, kMin, kMax };

class IndexExpr {
 public:
  IndexExpr(int64_t value = 0);  // NOLINT: an integer converts to an expression
  static IndexExpr symbol(SymbolKind kind, int index);
  static IndexExpr size(int index) { return symbol(SymbolKind::kSize, index); }
  static IndexExpr loop(int index) { return symbol(SymbolKind::kLoop, index); }
  static IndexExpr reduce(int index) { return symbol(SymbolKind::kReduce, index); }
  static IndexExpr value(int index) { return symbol(SymbolKind::kValue, index); }

  IndexOp op() const;
  bool is_const() const { return op() == IndexOp::kConst; }
  bool is_const(int64_t value) const { return is_const() && constant() == value; }
  int64_t constant() const;  // The value of a kConst.
  Symbol symbol() const;     // The symbol of a kSymbol.
  // kAdd and kMul have two or more, in canonical order. The other operations have two.
  const std::vector<IndexExpr>& args() const;
  bool uses(Symbol s) const;
  bool uses(SymbolKind kind) const;
  std::string str() const;  // "s0*4 + i1 // 3". parse_index reads it back.

  /// Compares the structure. Sums and products written in another order are equal, because their order is canonical.
  friend bool operator==(const IndexExpr& a, const IndexExpr& b);
  static int order(const IndexExpr& a, const IndexExpr& b);  // Total order of expressions: -1, 0 or 1.
  static int order(const std::vector<IndexExpr>& a, const std::vector<IndexExpr>& b);  // The first difference decides.
  size_t hash() const;
  int node_count() const;  // Number of nodes of the tree. `simplify` never increases it.

  /// Makes a node without folding. Only index_terms.cpp and index_expr.cpp call it.
  static IndexExpr node(IndexOp op, std::vector<IndexExpr> args);

 private:
  struct Node;
  explicit IndexExpr(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  std::shared_ptr<const Node> node_;
};

}  // namespace ocl::ir
