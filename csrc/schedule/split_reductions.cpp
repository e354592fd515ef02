// csrc/schedule/split_reductions.cpp: pass: splits long reductions with few results into two steps.
#include "csrc/schedule/split_reductions.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "csrc/ir/append.h"
#include "csrc/ir/facts.h"
#include "csrc/schedule/body.h"

namespace ocl::schedule {

using ir::Shape;

std::vector<std::optional<IndexExpr>> loop_strides(const Graph& graph, BufferId buffer, const std::vector<IndexExpr>& coords,
                                                   const std::vector<Symbol>& loops, const ir::Ranges& ranges) {
  const IndexExpr offset = linear_offset(graph.buffers[buffer], coords, ranges);
  std::vector<std::optional<IndexExpr>> result;
  for (const Symbol s : loops) {
    const auto affine = affine_in(offset, s);
    result.push_back(affine ? std::optional(simplify(affine->coefficient, ranges)) : std::nullopt);
  }
  return result;
}

std::optional<int64_t> first_step(const Graph& graph, BufferId buffer, const std::vector<IndexExpr>& coords,
                                  const std::vector<Symbol>& loops, Symbol loop, const ir::Ranges& ranges) {
  std::map<Symbol, IndexExpr> first;
  for (const Symbol s : loops) first.emplace(s, 0);
  const IndexExpr offset = linear_offset(graph.buffers[buffer], coords, ranges), start = substitute(offset, first);
  first[loop] = 1;
  const IndexExpr distance = simplify(substitute(offset, first) - start, ranges);
  return distance.is_const() ? std::optional(distance.constant()) : std::nullopt;
}

namespace {

/// Returns whether neighbouring i* of some loop load neighbours, as the vectors of a table whose rows are loaded numbers.
bool loads_neighbours(const Graph& graph, const Node& node, const ir::Op& load) {
  const Loops loops = loops_of(node);
  const std::vector<Symbol> symbols = loops.symbols();
  const auto strides = loop_strides(graph, load.buffer, load.index, symbols, loops.ranges(graph));
  for (size_t i = 0; i < node.sizes.size(); ++i)
    if (strides[i] && strides[i]->is_const(1)) return true;
  return false;
}

/// Returns the load that moves most bytes among those that depend on r*; kNone if there is none. One that depends on r* only by
/// a loaded number counts where it loads neighbours.
int main_load(const Graph& graph, const Node& node) {
  int best = ir::kNone;
  double best_bytes = -1;
  for (size_t i = 0; i < node.body.ops.size(); ++i) {
    const ir::Op& op = node.body.ops[i];
    if (op.code != ir::OpCode::kLoad) continue;
    const auto uses = [&](SymbolKind kind) {
      return std::any_of(op.index.begin(), op.index.end(), [&](const IndexExpr& e) { return e.uses(kind); });
    };
    if (!uses(SymbolKind::kReduce) && !(uses(SymbolKind::kValue) && loads_neighbours(graph, node, op))) continue;
    const double bytes = typical_bytes(graph, op.buffer);
    if (bytes <= best_bytes) continue;
    best = static_cast<int>(i);
    best_bytes = bytes;
  }
  return best;
}

// Reductions, and final steps of split reductions, of up to these lengths stay in one lane, as in pooling.
constexpr double kShort = 128, kShortFinal = 16;
// Rows of up to so many elements, as the windows of a pool, would leave most of a GPU's lanes idle.
constexpr double kShortRow = 16;
// On a CPU, windows of several rows with fewer elements each are reduced a vector of windows at a time: a row fills no vector.
constexpr double kShortRun = 8;
constexpr int64_t kShortScan = 32;  // Scans of fewer elements stay in one work-item.
// With so many work-items for each compute unit, each has a column of its own. Work-items that share a column combine their
// results in local memory, which gains less where that is global memory.
constexpr double kItemsOfUnit = 2048, kItemsWithoutLocal = 256;
constexpr double kBytesPerGroup = 128 << 10;  // Bytes that one work-group reads in about the time of two launches.
// A work-group reads a row of up to this many bytes in less time than a second launch takes. A pass after the reduction, as in
// a norm, then joins it.
constexpr double kRowOfGroupBytes = 16 << 10;
constexpr int64_t kMaybeLong = 1 << 20;  // The assumed length of a symbolic row, where there are few rows.
constexpr int64_t kTransferBytes = 32;   // Bytes that a GPU's caches pass on at once.
constexpr int64_t kFullBytes = 4;        // Elements of this size are read alone in the time of smaller ones.

}  // namespace

LoopStrategy reduction_strategy(const Graph& graph, const Node& node, const Caps& caps) {
  const double outer = typical_product(graph, node.sizes), length = typical_product(graph, node.reduce_sizes);
  if (outer <= 1) return LoopStrategy::kRow;
  const int load = main_load(graph, node);
  bool contiguous_r = false, contiguous_i = false;
  double run = 0;  // Elements of a row that lie one after the other.
  if (load != ir::kNone) {
    const Loops loops = loops_of(node);
    const std::vector<Symbol> symbols = loops.symbols();
    const auto strides =
        loop_strides(graph, node.body.ops[load].buffer, node.body.ops[load].index, symbols, loops.ranges(graph));
    const ir::Op& op = node.body.ops[load];
    for (size_t i = 0; i < symbols.size(); ++i) {
      if (!(strides[i] ? strides[i]->is_const(1)
                       : !caps.is_cpu && first_step(graph, op.buffer, op.index, symbols, symbols[i], loops.ranges(graph)) == 1))
        continue;
      const bool reduced = symbols[i].kind == SymbolKind::kReduce;
      (reduced ? contiguous_r : contiguous_i) = true;
      if (reduced) run = typical(graph, node.reduce_sizes[static_cast<size_t>(symbols[i].index)]);
    }
  }
  if (contiguous_i) {
    // A single work-item would read the slices of a split reduction one after the other, and wait for memory each time.
    const double least = node.stage == ir::ReductionStage::kFinal ? kShortFinal : kShort;
    const double items = caps.units * (caps.local_is_global ? kItemsWithoutLocal : kItemsOfUnit);
    if (!caps.is_cpu && length > least && outer < items) return LoopStrategy::kColumn;
    return LoopStrategy::kSequential;
  }
  if (contiguous_r) {
    const bool known =
        std::all_of(node.reduce_sizes.begin(), node.reduce_sizes.end(), [](const IndexExpr& e) { return e.is_const(); });
    const bool is_short = caps.is_cpu ? run < std::min(length, kShortRun) && length <= kShort : length <= kShortRow;
    return known && is_short ? LoopStrategy::kSequential : LoopStrategy::kRow;
  }
  // This reduction computes its elements and loads none.
  if (load == ir::kNone && !caps.is_cpu && length > kShort) return LoopStrategy::kRow;
  return length <= kShort || outer >= 1024 ? LoopStrategy::kSequential : LoopStrategy::kRow;
}

LoopStrategy scan_strategy(const Graph& graph, const Node& node, const Caps& caps) {
  // A symbolic length may become long, and then a single work-item would take much too long.
  // Stores that add rely on the order of the loop, which the work-items of a group do not keep.
  const bool adds = std::ranges::any_of(node.stores, [](const ir::Store& s) { return s.mode == ir::StoreMode::kAdd; });
  if (caps.is_cpu || adds || graph.ranges().of(node.reduce_sizes.at(0)).high < kShortScan) return LoopStrategy::kSequential;
  return reduction_strategy(graph, node, caps) == LoopStrategy::kRow ? LoopStrategy::kRow : LoopStrategy::kSequential;
}

int columns_per_group(double outer, double length, int64_t element_bytes, const Caps& caps) {
  int64_t columns = 32;
  const int64_t least = element_bytes < kFullBytes ? kTransferBytes / element_bytes : 4;
  const auto groups = [&] { return std::ceil(outer / static_cast<double>(columns)); };
  const auto too_long = [&] { return length * static_cast<double>(columns * element_bytes) > kBytesPerGroup; };
  while ((columns > std::min<int64_t>(least, 8) && groups() * 3 < caps.units) ||
         (columns > least && groups() < 4 * caps.units && too_long()))
    columns /= 2;
  return static_cast<int>(columns);
}

bool enough_groups(LoopStrategy strategy, double outer, double length, int64_t element_bytes, const Caps& caps) {
  if (caps.is_cpu || (strategy != LoopStrategy::kRow && strategy != LoopStrategy::kColumn)) return false;
  const int columns = strategy == LoopStrategy::kColumn ? columns_per_group(outer, length, element_bytes, caps) : 1;
  const int64_t bytes = columns * (strategy == LoopStrategy::kColumn ? element_bytes : kFullBytes);
  return std::ceil(outer / columns) * 3 >= caps.units && length * static_cast<double>(bytes) <= kBytesPerGroup;
}

namespace {

/// Returns the size of the smallest elements that the node loads.
int64_t smallest_load(const Graph& graph, const Node& node) {
  int64_t bytes = 8;
  for (const ir::Op& op : node.body.ops)
    if (op.code == ir::OpCode::kLoad) bytes = std::min<int64_t>(bytes, size_bytes(graph.buffers[op.buffer].dtype));
  return std::min(bytes, kFullBytes);
}

/// True if a loop of any length may be cut into slices of one length: what is read past its end is the last element again,
/// which leaves extremes as they are, or counts as 0.
bool has_open_end(const Node& node) {
  const ir::ReductionKind kind = facts(node.reduction).kind;
  return kind == ir::ReductionKind::k_sum || kind == ir::ReductionKind::k_monotone || kind == ir::ReductionKind::k_position;
}

/// Returns about how many work-groups of a GPU reduce the rows or columns of a node.
double groups_of(LoopStrategy strategy, double outer) {
  return strategy == LoopStrategy::kRow ? outer : std::ceil(outer / (strategy == LoopStrategy::kColumn ? 32 : 128));
}

/// True if a GPU would read, in a few work-groups, what may be as long as kMaybeLong.
bool may_be_long(const Graph& graph, const Node& node, const Caps& caps) {
  const auto is_const = [](const IndexExpr& e) { return e.is_const(); };
  if (caps.is_cpu || !has_open_end(node) || !std::all_of(node.sizes.begin(), node.sizes.end(), is_const)) return false;
  const bool open = std::any_of(node.reduce_sizes.begin(), node.reduce_sizes.end(),
                                [&](const IndexExpr& e) { return graph.ranges().of(e).high >= kMaybeLong && !e.is_const(); });
  return open && 4 * groups_of(reduction_strategy(graph, node, caps), typical_product(graph, node.sizes)) < caps.units;
}

/// Returns the number of slices into which a reduction over `length` elements should be split. 1: it should not be split.
double wanted_slices(const Graph& graph, const Node& node, double length, const Caps& caps) {
  const LoopStrategy strategy = reduction_strategy(graph, node, caps);
  const double outer = typical_product(graph, node.sizes);
  if (caps.is_cpu) {
    // Columns are summed eight vectors at a time, if there are enough.
    const double items = strategy == LoopStrategy::kRow ? outer : std::ceil(outer / (8 * caps.vector_floats));
    if (items >= (strategy == LoopStrategy::kRow ? 1 : 2) * caps.units || length * outer < 32768 || length < 1024) return 1;
    return std::min(std::ceil(4 * caps.units / items), length / 256);
  }
  if (strategy == LoopStrategy::kRow && length * kFullBytes <= kRowOfGroupBytes) return 1;
  const double groups = groups_of(strategy, outer);
  if (groups >= 2 * caps.units || length < 1024 || enough_groups(strategy, outer, length, smallest_load(graph, node), caps))
    return 1;
  return std::min(std::ceil(4 * caps.units / groups), length / 256);
}

/// Returns the least divisor of n that is at least `wanted`. If that is above 4 * wanted, returns the greatest divisor
/// below `wanted`.
int64_t divisor_near(int64_t n, double wanted) {
  int64_t below = 1, above = n;
  for (int64_t d = 1; d * d <= n; ++d)
    if (n % d == 0)
      for (const int64_t candidate : {d, n / d}) {
        if (static_cast<double>(candidate) >= wanted)
          above = std::min(above, candidate);
        else
          below = std::max(below, candidate);
      }
  return static_cast<double>(above) <= 4 * wanted ? above : below;
}

/// Returns the loops r* by falling stride of the main operand. The outer loops are split first, so that a slice is
/// contiguous.
std::vector<int> cutting_order(const Graph& graph, const Node& node) {
  std::vector<int> order(node.reduce_sizes.size());
  std::iota(order.begin(), order.end(), 0);
  const int load = main_load(graph, node);
  if (load == ir::kNone) return order;
  const Loops loops = loops_of(node);
  std::vector<Symbol> symbols;
  for (const int r : order) symbols.push_back({SymbolKind::kReduce, r});
  const auto strides = loop_strides(graph, node.body.ops[load].buffer, node.body.ops[load].index, symbols, loops.ranges(graph));
  std::vector<double> size(order.size(), 0);
  for (const int r : order)
    if (strides[r]) size[r] = std::abs(typical(graph, *strides[r]));
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return size[a] > size[b]; });
  return order;
}

/// Makes 0 of what the partial node of a sum reads past the end of loops of `sizes`, whose iterations are `positions`.
void drop_past_end(Node& node, const Coords& positions, const Shape& sizes) {
  if (positions.empty() || facts(node.reduction).kind != ir::ReductionKind::k_sum) return;
  ir::Body& body = node.body;
  for (size_t k = 0; k < positions.size(); ++k) {
    const int at = push_index(body, positions[k]), end = push_index(body, sizes[k]);
    const int inside = push(body, ir::OpCode::k_lt, ir::DType::kBool, {at, end});
    for (int& value : node.reduced) {
      const ir::DType dtype = body.ops[value].dtype;
      const int zero = push(body, ir::OpCode::kConstant, dtype);
      body.ops[zero].constant = {ir::is_floating(dtype), 0, 0};
      value = push(body, ir::OpCode::k_where, dtype, {inside, value, zero});
    }
  }
}

/// Where the loops of a reduction are cut. `open`: those of symbolic size may be, too.
struct Cuts {
  Shape splits;                // The loops over slices.
  std::vector<int64_t> taken;  // For each loop, the number of slices; 0: one slice per iteration.
  std::vector<int> split_of;   // For each loop, the number of its loop over slices, or kNone.
};
Cuts cuts_of(const Graph& graph, const Node& node, double slices, bool open) {
  Cuts cuts{{}, std::vector<int64_t>(node.reduce_sizes.size(), 1), std::vector<int>(node.reduce_sizes.size(), ir::kNone)};
  double reached = 1;
  for (const int r : cutting_order(graph, node)) {
    const IndexExpr& size = node.reduce_sizes[r];
    if (reached >= slices) break;
    const double count = typical(graph, size);
    if (count <= 1) continue;
    const bool cut_open = open && !size.is_const();
    if (!cut_open && reached * count <= 2 * slices) {
      cuts.taken[r] = 0;
      cuts.split_of[r] = static_cast<int>(cuts.splits.size());
      cuts.splits.push_back(size);
      reached *= count;
      continue;
    }
    if (!size.is_const() && !cut_open) continue;
    const int64_t divisor = cut_open ? static_cast<int64_t>(slices / reached) : divisor_near(size.constant(), slices / reached);
    if (divisor <= 1) continue;
    cuts.taken[r] = divisor;
    cuts.split_of[r] = static_cast<int>(cuts.splits.size());
    // A short loop of symbolic size has fewer slices: none is past its end. An empty one has none.
    const IndexExpr slice = ir::max(ceildiv(size, divisor), 1);
    cuts.splits.push_back(cut_open ? simplify(ceildiv(size, slice), graph.ranges()) : IndexExpr(divisor));
    reached *= static_cast<double>(divisor);
  }
  return cuts;
}

/// Splits `node` into a partial and a final node. Returns false if its loops have no suitable divisors.
/// `open`: loops of symbolic size may be cut.
bool split(Graph& graph, Node& node, double slices, bool open, std::vector<Node>& nodes) {
  const auto& [splits, taken, split_of] = cuts_of(graph, node, slices, open);
  if (splits.empty() || std::find_if(taken.begin(), taken.end(), [](int64_t t) { return t != 0; }) == taken.end()) return false;

  const int shift = static_cast<int>(splits.size());
  Node partial = node;
  partial.stage = ir::ReductionStage::kPartial;
  partial.sizes = splits;
  partial.sizes.insert(partial.sizes.end(), node.sizes.begin(), node.sizes.end());
  partial.reduce_sizes.clear();
  LoopMap map;
  Coords open_positions;
  Shape open_sizes;
  for (size_t i = 0; i < node.sizes.size(); ++i)
    map.emplace(Symbol{SymbolKind::kLoop, static_cast<int>(i)}, IndexExpr::loop(static_cast<int>(i) + shift));
  for (size_t r = 0; r < node.reduce_sizes.size(); ++r) {
    IndexExpr e = 0;
    if (taken[r] == 0) {
      e = IndexExpr::loop(split_of[r]);
    } else {
      const IndexExpr& size = node.reduce_sizes[r];
      const IndexExpr slice = simplify(ir::ceildiv(size, taken[r]), graph.ranges());
      e = IndexExpr::reduce(static_cast<int>(partial.reduce_sizes.size()));
      if (split_of[r] != ir::kNone) e = IndexExpr::loop(split_of[r]) * slice + e;
      if (split_of[r] != ir::kNone && !size.is_const()) {
        open_positions.push_back(e);
        open_sizes.push_back(size);
        e = ir::min(e, size - 1);
      }
      partial.reduce_sizes.push_back(slice);
    }
    map.emplace(Symbol{SymbolKind::kReduce, static_cast<int>(r)}, e);
  }
  rewrite_loops(partial, map, graph.ranges(&partial));
  drop_past_end(partial, open_positions, open_sizes);

  Node last = node;
  last.stage = ir::ReductionStage::kFinal;
  last.refused.clear();  // The partial node has the refusals.
  last.reduce_sizes = splits;
  last.body.ops.clear();
  last.reduced.clear();
  partial.stores.clear();
  Coords at_partial, at_final;
  for (int i = 0; i < shift + static_cast<int>(node.sizes.size()); ++i) {
    at_partial.push_back(IndexExpr::loop(i));
    at_final.push_back(i < shift ? IndexExpr::reduce(i) : IndexExpr::loop(i - shift));
  }
  const ir::ReductionFacts& row = facts(node.reduction);
  const ir::DType input = node.body.ops[node.reduced[0]].dtype;
  for (int a = 0; a < row.accumulators; ++a) {
    ir::Buffer buffer;
    buffer.dtype = accumulator_dtype(node.reduction, a, input);
    buffer.sizes = partial.sizes;
    buffer.strides = contiguous_strides(buffer.sizes);
    const BufferId id = graph.add_buffer(buffer);
    partial.stores.push_back({id, at_partial, a});
    last.reduced.push_back(static_cast<int>(last.body.ops.size()));
    push_load(last.body, compute_type(buffer.dtype), id, at_final);
  }
  nodes.push_back(std::move(partial));
  nodes.push_back(std::move(last));
  return true;
}

constexpr double kLeastSlices = 1.5;

}  // namespace

bool wants_slices(const Graph& graph, const Node& node, const Caps& caps) {
  return wanted_slices(graph, node, typical_product(graph, node.reduce_sizes), caps) > kLeastSlices;
}

void split_reductions(Schedule& schedule, const Caps& caps) {
  Graph& graph = schedule.graph;
  std::vector<Node> nodes;
  std::vector<ir::NodeId> from;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& node = graph.nodes[i];
    const bool whole = node.kind == ir::NodeKind::kReduce && node.stage == ir::ReductionStage::kWhole;
    double slices = whole ? wanted_slices(graph, node, typical_product(graph, node.reduce_sizes), caps) : 1;
    const bool open = whole && slices <= kLeastSlices && may_be_long(graph, node, caps);
    if (open) slices = wanted_slices(graph, node, kMaybeLong, caps);
    if (slices > kLeastSlices && split(graph, node, slices, open, nodes)) {
      schedule.log.push_back(node.origin.op + ": split, " + std::to_string(static_cast<int>(slices)) + " slices wanted");
      from.resize(nodes.size(), ir::kNone);
      continue;
    }
    nodes.push_back(std::move(node));
    from.push_back(static_cast<ir::NodeId>(i));
  }
  replace_nodes(schedule, std::move(nodes), from);
}

}  // namespace ocl::schedule
