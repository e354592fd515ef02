// csrc/schedule/share_copies.cpp: pass: makes equal copies and packs only once.
#include "csrc/schedule/share_copies.h"

#include <algorithm>
#include <numeric>

namespace ocl::schedule {

namespace {

/// A Map node that copies each element once. `text` describes the copy with its loops in the order of the result's
/// memory, without loops of extent 1. Equal texts mean equal memory.
struct CopyNode {
  std::string text;
  std::vector<int> dims;  // The dimension of the result's buffer for each loop in that order.
};

/// An earlier buffer with the same contents as a buffer that it replaces. Its coordinate d is coordinate from[d] of the
/// replaced buffer, or 0 if from[d] is kNone.
struct EqualBuffer {
  BufferId buffer;
  std::vector<int> from;
};

std::string text_of(const std::vector<IndexExpr>& list) {
  std::string text;
  for (const IndexExpr& e : list) text += e.str() + ", ";
  return text;
}

class CopySharing {
 public:
  explicit CopySharing(Schedule& schedule) : schedule_(schedule), visible_(visible_buffers(schedule.graph)) {
    writers_.resize(schedule.graph.buffers.size());
    for (size_t i = 0; i < schedule.graph.nodes.size(); ++i)
      for (const BufferId b : ir::writes(schedule.graph.nodes[i])) writers_[b].push_back(static_cast<NodeId>(i));
  }

  void run() {
    for (size_t i = 0; i < schedule_.graph.nodes.size(); ++i) {
      const NodeId id = static_cast<NodeId>(i);
      redirect(id);
      if (schedule_.graph.nodes[i].kind == ir::NodeKind::kPack)
        share_pack(id);
      else if (const auto copy = copy_of(schedule_.graph.nodes[i]))
        share_copy(id, *copy);
    }
    if (!equal_buffers_.empty()) drop_dead_nodes(schedule_);
  }

 private:
  /// Makes the node read equal buffers in place of the replaced ones.
  void redirect(NodeId id) {
    const auto move = [&](BufferId& buffer, std::vector<IndexExpr>& coords) {
      const auto equal = equal_buffers_.find(buffer);
      if (equal == equal_buffers_.end()) return;
      std::vector<IndexExpr> moved;
      for (const int d : equal->second.from) moved.push_back(d == ir::kNone ? IndexExpr(0) : coords[d]);
      buffer = equal->second.buffer;
      coords = std::move(moved);
    };
    Node& node = schedule_.graph.nodes[id];
    for (ir::View& view : node.operands) move(view.buffer, view.coords);
    for (ir::Op& op : node.body.ops)
      if (op.code == ir::OpCode::kLoad) move(op.buffer, op.index);
    const auto launch = schedule_.launches.find(id);
    if (launch == schedule_.launches.end()) return;
    for (TemplateLaunch::Input& input : launch->second.inputs) {
      const auto equal = equal_buffers_.find(input.buffer);
      // Offsets refer to memory, so they do not change.
      if (equal != equal_buffers_.end()) input.buffer = equal->second.buffer;
    }
  }

  std::optional<CopyNode> copy_of(const Node& node) const {
    if (node.kind != ir::NodeKind::kMap || node.body.ops.size() != 1 || node.stores.size() != 1) return std::nullopt;
    const ir::Op& load = node.body.ops[0];
    const ir::Store& store = node.stores[0];
    if (load.code != ir::OpCode::kLoad || !load.args.empty() || store.mask != ir::kNone ||
        store.mode != ir::StoreMode::kWrite || visible_[store.buffer] || writers_[store.buffer].size() != 1)
      // The last condition excludes buffers that several nodes write, as in a concatenation.
      return std::nullopt;
    const ir::Buffer& to = schedule_.graph.buffers[store.buffer];
    if (!to.strides || to.dtype != schedule_.graph.buffers[load.buffer].dtype) return std::nullopt;

    CopyNode copy;
    std::vector<int> loops;  // The loop for each dimension of the result.
    for (size_t d = 0; d < store.index.size(); ++d) {
      const IndexExpr& e = store.index[d];
      const bool is_loop = e.op() == ir::IndexOp::kSymbol && e.symbol().kind == SymbolKind::kLoop;
      if (!is_loop && !e.is_const(0)) return std::nullopt;
      loops.push_back(is_loop ? e.symbol().index : ir::kNone);
      if (!is_loop || node.sizes[loops.back()].is_const(1)) continue;
      if (!(*to.strides)[d].is_const()) return std::nullopt;
      copy.dims.push_back(static_cast<int>(d));
    }
    std::stable_sort(copy.dims.begin(), copy.dims.end(),
                     [&](int a, int b) { return (*to.strides)[a].constant() > (*to.strides)[b].constant(); });
    std::map<Symbol, IndexExpr> renamed;
    ir::Ranges ranges = schedule_.graph.ranges();
    copy.text = std::to_string(load.buffer) + ": ";
    for (size_t k = 0; k < copy.dims.size(); ++k) {
      const size_t d = static_cast<size_t>(copy.dims[k]);
      const IndexExpr loop = IndexExpr::loop(static_cast<int>(k));
      // If two dimensions use the same loop, the node stores a diagonal, which is not a copy of each element.
      if (!renamed.emplace(IndexExpr::loop(loops[d]).symbol(), loop).second) return std::nullopt;
      const IndexExpr& size = node.sizes[loops[d]];
      ranges.set_extent(loop.symbol(), size);
      copy.text += size.str() + " of " + to.sizes[d].str() + " by " + (*to.strides)[d].str() + ", ";
    }
    for (size_t loop = 0; loop < node.sizes.size(); ++loop) {
      const Symbol symbol = IndexExpr::loop(static_cast<int>(loop)).symbol();
      // A loop that no coordinate uses would store an element more than once.
      if (!renamed.count(symbol) && !node.sizes[loop].is_const(1)) return std::nullopt;
      renamed.emplace(symbol, 0);
    }
    for (const IndexExpr& e : load.index) copy.text += ir::simplify(ir::substitute(e, renamed), ranges).str() + ", ";
    return copy;
  }

  void share_copy(NodeId id, const CopyNode& copy) {
    const Node& node = schedule_.graph.nodes[id];
    const auto [first, is_new] = copies_.try_emplace(copy.text, id, copy);
    if (is_new || changed(node.body.ops[0].buffer, first->second.first, id)) {
      first->second = {id, copy};
      return;
    }
    const Node& other = schedule_.graph.nodes[first->second.first];
    EqualBuffer equal{other.stores[0].buffer, {}};
    equal.from.assign(schedule_.graph.buffers[equal.buffer].sizes.size(), ir::kNone);
    for (size_t k = 0; k < copy.dims.size(); ++k) equal.from[first->second.second.dims[k]] = copy.dims[k];
    equal_buffers_.emplace(node.stores[0].buffer, std::move(equal));
  }

  /// Packs are equal if their launches are equal.
  void share_pack(NodeId id) {
    const Node& node = schedule_.graph.nodes[id];
    const auto launch = schedule_.launches.find(id);
    if (launch == schedule_.launches.end() || visible_[node.outputs[0]]) return;
    const TemplateLaunch& l = launch->second;
    std::string text =
        std::string(kernel_row(l.kernel).name) + " " + text_of(node.sizes) + text_of({l.groups.begin(), l.groups.end()});
    for (const auto& [name, value] : l.defines) text += name + "=" + value + " ";
    for (const TemplateLaunch::Int& value : l.ints) text += value.value.str() + " ";
    for (const TemplateLaunch::Input& input : l.inputs) text += std::to_string(input.buffer) + " + " + input.offset.str() + " ";
    const auto [first, is_new] = packs_.try_emplace(text, id);
    const auto stale = [&](const TemplateLaunch::Input& input) { return changed(input.buffer, first->second, id); };
    if (is_new || std::any_of(l.inputs.begin(), l.inputs.end(), stale)) {
      first->second = id;
      return;
    }
    EqualBuffer equal{schedule_.graph.nodes[first->second].outputs[0], {}};
    equal.from.resize(node.sizes.size());
    std::iota(equal.from.begin(), equal.from.end(), 0);
    equal_buffers_.emplace(node.outputs[0], std::move(equal));
  }

  /// True if a node between `first` and `second` writes to the buffer. A graph may write to the caller's buffers.
  bool changed(BufferId buffer, NodeId first, NodeId second) const {
    return buffer != ir::kNone &&
           std::any_of(writers_[buffer].begin(), writers_[buffer].end(), [&](NodeId w) { return first < w && w < second; });
  }

  Schedule& schedule_;
  const std::vector<bool> visible_;
  std::vector<std::vector<NodeId>> writers_;  // The nodes that write each buffer.
  std::map<std::string, std::pair<NodeId, CopyNode>> copies_;
  std::map<std::string, NodeId> packs_;
  std::map<BufferId, EqualBuffer> equal_buffers_;
};

}  // namespace

void share_copies(Schedule& schedule, const Caps&) { CopySharing(schedule).run(); }

}  // namespace ocl::schedule
