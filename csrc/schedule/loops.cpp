// csrc/schedule/loops.cpp: solves coordinates for loops. A map is proposed from the form of the coordinates and then
// proved.
#include "csrc/schedule/loops.h"

#include <algorithm>

namespace ocl::schedule {

using ir::Ranges;

std::vector<Symbol> Loops::symbols() const {
  std::vector<Symbol> result;
  for (size_t i = 0; i < sizes.size(); ++i) result.push_back({SymbolKind::kLoop, static_cast<int>(i)});
  for (size_t i = 0; i < reduce_sizes.size(); ++i) result.push_back({SymbolKind::kReduce, static_cast<int>(i)});
  return result;
}

ir::Shape Loops::extents() const {
  ir::Shape result = sizes;
  result.insert(result.end(), reduce_sizes.begin(), reduce_sizes.end());
  return result;
}

Ranges Loops::ranges(const ir::Graph& graph) const {
  Ranges result = graph.ranges();
  const ir::Shape extent = extents();
  const std::vector<Symbol> symbol = symbols();
  for (size_t i = 0; i < symbol.size(); ++i) result.set_extent(symbol[i], extent[i]);
  return result;
}

Loops loops_of(const ir::Node& node) { return {node.sizes, is_reduction(node) ? node.reduce_sizes : ir::Shape{}}; }

LoopMap identity(const Loops& loops) {
  LoopMap map;
  for (const Symbol s : loops.symbols()) map.emplace(s, IndexExpr::symbol(s.kind, s.index));
  return map;
}

Coords substitute(const Coords& coords, const LoopMap& map, const Ranges& ranges) {
  Coords result;
  for (const IndexExpr& e : coords) result.push_back(simplify(ir::substitute(e, map), ranges));
  return result;
}

LoopMap compose(const LoopMap& inner, const LoopMap& outer, const Ranges& ranges) {
  LoopMap result;
  for (const auto& [symbol, e] : inner) result.emplace(symbol, simplify(ir::substitute(e, outer), ranges));
  return result;
}

namespace {

/// Returns a proposal for the value of `s` for which coords equals target, from the form of the coordinates that
/// contain s.
std::optional<IndexExpr> propose(Symbol s, const IndexExpr& extent, const std::vector<Symbol>& all, const Coords& coords,
                                 const Coords& target) {
  for (size_t d = 0; d < coords.size(); ++d)
    if (coords[d] == IndexExpr::symbol(s.kind, s.index)) return target[d];
  // s may be split over several coordinates.
  std::optional<IndexExpr> digits;
  for (size_t d = 0; d < coords.size(); ++d) {
    const auto weight = digit_weight(coords[d], s);
    if (weight) digits = digits.value_or(IndexExpr(0)) + target[d] * *weight;
  }
  if (digits) return digits;
  // s may be one digit of a flattened coordinate, or be shifted by a constant.
  for (size_t d = 0; d < coords.size(); ++d) {
    const auto affine = affine_in(coords[d], s);
    if (!affine || affine->coefficient.is_const(0)) continue;
    bool others = false;
    for (const Symbol other : all) others |= other != s && affine->rest.uses(other);
    if (!others) return floordiv(target[d] - affine->rest, affine->coefficient);
    return mod(floordiv(target[d], affine->coefficient), extent);
  }
  return std::nullopt;
}

}  // namespace

std::optional<LoopMap> solve(const Loops& loops, const Coords& coords, const Coords& target, const Ranges& target_ranges) {
  if (coords.size() != target.size()) return std::nullopt;
  const std::vector<Symbol> symbols = loops.symbols();
  const ir::Shape extents = loops.extents();
  LoopMap map;
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (extents[i].is_const(1)) {
      map.emplace(symbols[i], 0);
      continue;
    }
    const auto proposal = propose(symbols[i], extents[i], symbols, coords, target);
    if (!proposal) continue;
    const IndexExpr e = simplify(*proposal, target_ranges);
    if (!target_ranges.known_nonnegative(e) || !target_ranges.known_less(e, extents[i])) return std::nullopt;
    map.emplace(symbols[i], e);
  }
  for (size_t d = 0; d < coords.size(); ++d) {
    for (size_t i = 0; i < symbols.size(); ++i)
      if (!map.count(symbols[i]) && coords[d].uses(symbols[i])) return std::nullopt;
    if (!(simplify(ir::substitute(coords[d], map), target_ranges) == simplify(target[d], target_ranges))) return std::nullopt;
  }
  return map;
}

bool is_bijection(const ir::Graph& graph, const Loops& from, const LoopMap& map, const Loops& to, bool outer_only) {
  const Loops image = outer_only ? Loops{to.sizes, {}} : to;
  if (!same_count(from.extents(), image.extents())) return false;
  Coords values, wanted;
  for (const Symbol s : from.symbols()) {
    const auto it = map.find(s);
    if (it == map.end()) return false;
    values.push_back(it->second);
    wanted.push_back(IndexExpr::symbol(s.kind, s.index));
  }
  const auto inverse = solve(image, values, wanted, from.ranges(graph));
  return inverse && inverse->size() == image.symbols().size();
}

std::optional<int> half_of_vectors(const ir::Buffer& buffer, const IndexExpr& rest, int width, const ir::Ranges& ranges) {
  IndexExpr count = 1;
  for (size_t d = 0; d < buffer.sizes.size(); ++d) count = count + (buffer.sizes[d] - 1) * (*buffer.strides)[d];
  if (width % 2 != 0 || !ranges.known_divides(2, simplify(count, ranges))) return std::nullopt;
  for (const int half : {0, 1})
    if (ranges.known_divides(width, simplify(rest - half, ranges))) return half;
  return std::nullopt;
}

double typical(const ir::Graph& graph, const IndexExpr& e) {
  if (e.is_const()) return static_cast<double>(e.constant());
  const auto value = [&](Symbol s) -> int64_t {
    if (s.kind != SymbolKind::kSize) return 0;
    const ir::Range range = graph.symbol_ranges[s.index];
    return std::clamp<int64_t>(32, std::max<int64_t>(range.low, 0), std::max(range.high, std::max<int64_t>(range.low, 0)));
  };
  // A size may be divided by one that is below 1 for small sizes.
  return static_cast<double>(evaluate(e, value, ir::ZeroDivisor::kCountsAsOne));
}

double typical_product(const ir::Graph& graph, const ir::Shape& sizes) {
  double result = 1;
  for (const IndexExpr& size : sizes) result *= typical(graph, size);
  return result;
}

ir::Shape stored_sizes(const ir::Buffer& buffer) {
  ir::Shape result = buffer.sizes;
  for (size_t d = 0; buffer.strides && d < result.size(); ++d)
    if ((*buffer.strides)[d].is_const(0)) result[d] = 1;
  return result;
}

double typical_bytes(const ir::Graph& graph, ir::BufferId buffer) {
  return typical_product(graph, stored_sizes(graph.buffers[buffer])) * size_bytes(graph.buffers[buffer].dtype);
}

bool same_count(const ir::Shape& a, const ir::Shape& b) { return simplify(product(a), {}) == simplify(product(b), {}); }

}  // namespace ocl::schedule
