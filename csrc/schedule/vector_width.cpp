// csrc/schedule/vector_width.cpp: vectors along the innermost loop of a group, or along the loop that a transposition crosses.
#include "csrc/schedule/vector_width.h"

#include <algorithm>

#include "csrc/ir/facts.h"
#include "csrc/schedule/split_reductions.h"

namespace ocl::schedule {

namespace {

// Loop numbers that stand for the number of a vector, and for the lane in it.
constexpr int kVectorLoop = 1 << 20;
// A loop with a tail of single elements has at least so many vectors.
constexpr int64_t kVectorsBeforeTail = 16;
// A transposition has vectors if it has so many work-items with vectors for each compute unit.
constexpr double kCrossedItemsOfUnit = 256;
// Reductions and short rows have vectors if so many work-items remain for each compute unit.
constexpr double kVectorItemsOfUnit = 512;

class VectorWidth {
 public:
  VectorWidth(const Graph& graph, Group& group, const std::vector<AccessStrides>& accesses)
      : graph_(graph), group_(group), nodes_(group.nodes()), accesses_(accesses) {}

  void choose(const Caps& caps, bool scalar) {
    group_.vector_width = 1;
    if (group_.strategy == LoopStrategy::kColumn) {
      choose_columns(caps, scalar);
      return;
    }
    const bool row = group_.strategy == LoopStrategy::kRow;
    const ir::Shape& sizes = row ? group_.reduce_sizes : group_.sizes;
    if (sizes.empty() || scalar) return;
    const Symbol innermost{row ? SymbolKind::kReduce : SymbolKind::kLoop, static_cast<int>(sizes.size()) - 1};
    const ir::Ranges ranges = graph_.ranges();
    if (!caps.is_cpu) {
      // If all elements are small, a vector has 16 bytes. In rows, loads of four elements are wide enough unless some have one
      // byte.
      const bool pointwise = group_.strategy == LoopStrategy::kPointwise, sums = group_.strategy == LoopStrategy::kSequential;
      const bool bytes = row && std::ranges::any_of(accesses_, [&](const AccessStrides& access) {
                           const auto& stride = access.strides[position(innermost.kind, innermost.index)];
                           return access.element_bytes == 1 && stride && stride->is_const(1);
                         });
      const bool small = (pointwise || sums || bytes) && std::ranges::all_of(accesses_, [&](const AccessStrides& access) {
                           const auto& stride = access.strides[position(innermost.kind, innermost.index)];
                           return access.element_bytes <= 2 || (stride && stride->is_const(0));
                         });
      for (const int width : {8, 4})
        if ((width == 4 || (small && !has_slow_ops())) && group_.vector_width == 1 &&
            (!sums || reduces_in_vectors(innermost, width, caps)) &&
            (takes_vectors(innermost, width) || (pointwise && takes_vectors_and_tail(innermost, width))))
          group_.vector_width = width;
      if (pointwise && group_.vector_width == 1) choose_crossed_loop(caps);
      if (pointwise && group_.vector_width == 1 && group_.crossed_loop == ir::kNone) choose_gathered_width(innermost, caps);
      if (row || (pointwise && group_.vector_width == 1 && group_.crossed_loop == ir::kNone)) choose_ragged_width(innermost);
      return;
    }
    const size_t at = position(innermost.kind, innermost.index);
    if (std::ranges::none_of(
            accesses_, [&](const AccessStrides& access) { return access.strides[at] && access.strides[at]->is_const(1); }))
      return;
    int width = caps.vector_floats;
    const int64_t max_size = ranges.of(sizes.back()).high;
    while (width > 1 && width > max_size) width /= 2;
    group_.vector_width = width;
  }

 private:
  Loops loops() const { return {group_.sizes, group_.reduce_sizes}; }
  size_t position(SymbolKind kind, int loop) const {
    return static_cast<size_t>(loop) + (kind == SymbolKind::kLoop ? 0 : group_.sizes.size());
  }

  /// Chooses vectors of up to 16 bytes for rows that begin at any element. A GPU loads single elements of 16 bits at less than
  /// half of its bandwidth, and needs more instructions for those of 32 bits. Rows of all tensors must be aligned alike.
  void choose_ragged_width(Symbol loop) {
    const IndexExpr& size = loop.kind == SymbolKind::kLoop ? group_.sizes[loop.index] : group_.reduce_sizes[loop.index];
    if (has_scans() || (loop.kind == SymbolKind::kReduce && loop.index > 0)) return;
    const ir::Ranges ranges = loops().ranges(graph_);
    int64_t smallest = 8, largest = 1;
    std::vector<IndexExpr> starts;
    for (const AccessStrides& access : accesses_) {
      if (const auto& stride = access.strides[position(loop.kind, loop.index)]; stride && stride->is_const(0)) continue;
      const auto affine = affine_in(linear_offset(graph_.buffers[access.access.buffer], access.access.coords, ranges), loop);
      if (!affine || !affine->coefficient.is_const(1) || gathers(access.access.coords)) return;
      starts.push_back(affine->rest);
      smallest = std::min(smallest, access.element_bytes);
      largest = std::max(largest, access.element_bytes);
    }
    const int width = largest <= 2 && !has_slow_ops() ? 8 : 4;
    if (smallest > 4 || ranges.of(size).high < kVectorsBeforeTail * width) return;
    if (std::ranges::all_of(starts, [&](const IndexExpr& start) { return ranges.known_divides(width, start - starts[0]); }))
      group_.ragged_width = width;
  }

  /// For a transposition on a GPU: chooses a loop in which loads are contiguous although they are not in the innermost. A
  /// work-item loads a vector along that loop. Its stores go to as many rows, and neighbouring work-items continue them.
  void choose_crossed_loop(const Caps& caps) {
    const int last = static_cast<int>(group_.sizes.size()) - 1;
    const bool small = std::ranges::all_of(accesses_, [](const AccessStrides& access) { return access.element_bytes <= 2; });
    for (const int width : {16, 8, 4})
      for (int loop = 0; loop < last && group_.crossed_loop == ir::kNone && (small || width < 16); ++loop)
        if (typical_product(graph_, group_.sizes) >= kCrossedItemsOfUnit * caps.units * width && crosses(loop, width)) {
          group_.crossed_loop = loop;
          group_.vector_width = width;
        }
  }

  /// For short rows on a GPU that are stored whole, but loaded from several places, such as pixels with padded channels: a
  /// work-item stores a row as a vector. So it computes the outer loops once, and the conditions of each element are constants.
  void choose_gathered_width(Symbol loop, const Caps& caps) {
    const IndexExpr& size = group_.sizes[loop.index];
    if (!(size.is_const(4) || (size.is_const(8) && !has_slow_ops()))) return;
    const int64_t width = size.constant();
    if (typical_product(graph_, group_.sizes) < kVectorItemsOfUnit * caps.units * width) return;
    const ir::Ranges ranges = loops().ranges(graph_);
    if (std::ranges::all_of(accesses_, [&](const AccessStrides& access) {
          const auto& stride = access.strides[position(loop.kind, loop.index)];
          if (gathers(access.access.coords) || access.element_bytes > 4) return false;
          if (!access.store) return true;
          const auto affine =
              affine_in(linear_offset(graph_.buffers[access.access.buffer], access.access.coords, ranges), loop);
          return stride && stride->is_const(1) && affine && ranges.known_divides(width, affine->rest);
        }))
      group_.vector_width = static_cast<int>(width);
  }

  /// For kColumn: chooses the columns of a work-group, and vectors of 16 bytes of neighbouring columns.
  void choose_columns(const Caps& caps, bool scalar) {
    int64_t smallest = 4, largest = 1;
    for (const AccessStrides& access : accesses_) {
      if (access.store) continue;
      smallest = std::min(smallest, access.element_bytes);
      largest = std::max(largest, access.element_bytes);
    }
    group_.columns =
        columns_per_group(typical_product(graph_, group_.sizes), typical_product(graph_, group_.reduce_sizes), smallest, caps);
    const int width = largest <= 2 ? 8 : 4;
    const Symbol innermost{SymbolKind::kLoop, static_cast<int>(group_.sizes.size()) - 1};
    if (!scalar && width <= group_.columns && sums_of_floats() && takes_vectors(innermost, width)) group_.vector_width = width;
  }

  bool has_scans() const {
    return std::ranges::any_of(nodes_, [&](NodeId id) { return graph_.nodes[id].kind == ir::NodeKind::kScan; });
  }

  /// True if an op takes as long as random numbers do. Vectors of eight of them hold too many registers.
  bool has_slow_ops() const {
    return std::ranges::any_of(nodes_, [&](NodeId id) {
      return std::ranges::any_of(graph_.nodes[id].body.ops,
                                 [](const ir::Op& op) { return ir::facts(op.code).cost == ir::Cost::k_slow; });
    });
  }

  /// True if every reduction of the group has a single accumulator of type f32.
  bool sums_of_floats() const {
    for (const NodeId id : nodes_) {
      const Node& node = graph_.nodes[id];
      if (!ir::is_reduction(node)) continue;
      if (node.kind != ir::NodeKind::kReduce || ir::facts(node.reduction).accumulators != 1 ||
          ir::accumulator_dtype(node.reduction, 0, node.body.ops[node.reduced[0]].dtype) != ir::DType::kF32)
        return false;
    }
    return true;
  }

  /// True if the loop has whole vectors, which are contiguous or broadcast in each access. An offset that is not affine in the
  /// loop may be affine in a vector, as i % 768.
  bool takes_vectors(Symbol loop, int width) const {
    const ir::Shape& sizes = loop.kind == SymbolKind::kLoop ? group_.sizes : group_.reduce_sizes;
    if (sizes.empty() || !graph_.ranges().known_divides(width, sizes[loop.index])) return false;
    const IndexExpr vector = IndexExpr::loop(kVectorLoop), lane = IndexExpr::loop(kVectorLoop + 1);
    ir::Ranges ranges = loops().ranges(graph_);
    ranges.set_extent(lane.symbol(), width);
    const size_t at = position(loop.kind, loop.index);
    bool contiguous = false;
    for (const AccessStrides& access : accesses_) {
      std::optional<IndexExpr> stride = access.strides[at];
      if (stride && stride->is_const(2) && reads_half(access, loop, width)) continue;
      if (!stride) {
        const IndexExpr offset = linear_offset(graph_.buffers[access.access.buffer], access.access.coords, ranges);
        const auto affine = affine_in(simplify(substitute(offset, {{loop, vector * width + lane}}), ranges), lane.symbol());
        if (affine) stride = affine->coefficient;
      }
      if (!stride || !(stride->is_const(0) || stride->is_const(1))) return false;
      contiguous |= stride->is_const(1);
    }
    return contiguous;
  }

  /// True if a GPU's work-item may reduce vectors along the loop: each access is aligned, and enough work-items remain.
  bool reduces_in_vectors(Symbol loop, int width, const Caps& caps) const {
    if (typical_product(graph_, group_.sizes) < kVectorItemsOfUnit * caps.units * width || has_scans()) return false;
    const ir::Ranges ranges = loops().ranges(graph_);
    return std::ranges::all_of(accesses_, [&](const AccessStrides& access) {
      const auto affine = affine_in(linear_offset(graph_.buffers[access.access.buffer], access.access.coords, ranges), loop);
      return affine && (affine->coefficient.is_const(0) || ranges.known_divides(width, affine->rest));
    });
  }

  /// True if a row's load of every second element reads two vectors and takes half of each.
  bool reads_half(const AccessStrides& access, Symbol loop, int width) const {
    if (access.store || group_.strategy != LoopStrategy::kRow || gathers(access.access.coords)) return false;
    const ir::Ranges ranges = loops().ranges(graph_);
    const ir::Buffer& buffer = graph_.buffers[access.access.buffer];
    const auto affine = affine_in(linear_offset(buffer, access.access.coords, ranges), loop);
    return affine && half_of_vectors(buffer, affine->rest, width, ranges);
  }

  /// True if vectors along the loop are whole and aligned in a load that is not contiguous in the innermost loop, and each
  /// other access is contiguous or the same in one of the two loops.
  bool crosses(int loop, int width) const {
    if (!graph_.ranges().known_divides(width, group_.sizes[loop])) return false;
    const ir::Ranges ranges = loops().ranges(graph_);
    const auto is = [](const std::optional<IndexExpr>& stride, int64_t number) { return stride && stride->is_const(number); };
    const int last = static_cast<int>(group_.sizes.size()) - 1;
    bool found = false;
    for (const AccessStrides& access : accesses_) {
      const auto &stride = access.strides[loop], &next = access.strides[last];
      if (!stride || !next || !(stride->is_const())) return false;
      if (is(next, 1) || is(next, 0)) continue;
      const IndexExpr offset = linear_offset(graph_.buffers[access.access.buffer], access.access.coords, ranges);
      const auto affine = affine_in(offset, Symbol{SymbolKind::kLoop, loop});
      if (access.store || !is(stride, 1) || !affine || !ranges.known_divides(width, affine->rest)) return false;
      found = true;
    }
    return found;
  }

  /// True if the loop is no loop of whole vectors, but each row that is stored begins with aligned vectors, as in a buffer with
  /// padded rows. A GPU loads the vectors of other rows element by element, with as many loads under way.
  bool takes_vectors_and_tail(Symbol loop, int width) const {
    const IndexExpr& size = group_.sizes[loop.index];
    if (!size.is_const() || size.constant() % width == 0 || size.constant() < kVectorsBeforeTail * width) return false;
    const ir::Ranges ranges = loops().ranges(graph_);
    bool contiguous = false;
    for (const AccessStrides& access : accesses_) {
      if (const auto& stride = access.strides[position(loop.kind, loop.index)]; stride && stride->is_const(0)) continue;
      const IndexExpr offset = linear_offset(graph_.buffers[access.access.buffer], access.access.coords, ranges);
      const auto affine = affine_in(offset, loop);
      if (!affine || !affine->coefficient.is_const(1) || (access.store && !ranges.known_divides(width, affine->rest)))
        return false;
      contiguous = true;
    }
    return contiguous;
  }

  const Graph& graph_;
  Group& group_;
  const std::vector<NodeId> nodes_;
  const std::vector<AccessStrides>& accesses_;
};

}  // namespace

void choose_vector_width(const Graph& graph, Group& group, const std::vector<AccessStrides>& accesses, const Caps& caps,
                         bool scalar) {
  VectorWidth(graph, group, accesses).choose(caps, scalar);
}

}  // namespace ocl::schedule
