// csrc/schedule/computed_masks.cpp: pass: gives attention the ops that compute its mask.
#include "csrc/schedule/computed_masks.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "csrc/ir/append.h"
#include "csrc/schedule/body.h"

namespace ocl::schedule {
namespace {

constexpr double kLargeBytes = 16 << 20;  // From this size on, a mask is not stored if it can be computed.
constexpr size_t kMaxOps = 200;           // The most ops of the body of a mask.
// The most op_cost() of a small mask, and of one that several batches or heads share.
constexpr double kMaxCost = 40, kMaxSharedCost = 10;
// A value that a mask reads is computed in its body, too, if it has more elements than this, or is cheap.
constexpr double kManyElements = 1 << 20;
constexpr double kCheap = 2;

/// Collects the ops that compute the mask.
class MaskBody {
 public:
  MaskBody(const ir::Graph& graph, ir::NodeId attention, const ir::View& mask) : graph_(graph), attention_(attention) {
    body_.kind = ir::NodeKind::kMap;
    body_.sizes = mask.sizes;
    const ir::DType type = graph_.buffers[mask.buffer].dtype;
    push_load(body_.body, ir::compute_type(type), mask.buffer, mask.coords);
    ir::Store store;  // Only tells the body's value; nothing stores it.
    store.buffer = mask.buffer;
    body_.stores.push_back(std::move(store));
  }

  /// Replaces loads by the ops that compute the loaded values. Returns false if the mask itself is not computed by loops.
  bool collect(BufferId mask) {
    if (!inline_one(mask)) return false;
    for (bool more = true; more && body_.body.ops.size() <= kMaxOps;) {
      more = false;
      for (const BufferId b : ir::reads(body_))
        if (const std::optional<Node> node = producer(b); node && is_worth_it(b, *node)) {
          inline_one(b);
          more = true;
          break;
        }
    }
    return body_.body.ops.size() <= kMaxOps;
  }

  const Node& node() const { return body_; }

  /// Returns the body over r* with an f32 value, its last op: what is added to a score, -inf for a hidden one.
  ir::Body added() {
    ir::Body& body = body_.body;
    const int value = body_.stores[0].value;
    if (body.ops[value].dtype == ir::DType::kBool) {
      const int shown = push_constant(body, 0), hidden = push_constant(body, -std::numeric_limits<double>::infinity());
      push(body, ir::OpCode::k_where, ir::DType::kF32, {value, shown, hidden});
    } else {
      push(body, ir::OpCode::kCast, ir::DType::kF32, {value});
    }
    LoopMap loops;
    for (int i = 0; i < 4; ++i) loops.emplace(IndexExpr::loop(i).symbol(), IndexExpr::reduce(i));
    ir::Ranges ranges = graph_.ranges();
    for (int i = 0; i < 4; ++i) ranges.set_extent(IndexExpr::reduce(i).symbol(), body_.sizes[i]);
    rewrite_loops(body_, loops, ranges);
    return std::move(body_.body);
  }

 private:
  /// Returns the Map that computes a buffer, without loops of one iteration, if the attention can compute it as well.
  std::optional<Node> producer(BufferId buffer) const {
    std::optional<Node> map;
    ir::NodeId at = ir::kNone;
    for (ir::NodeId i = 0; i < attention_; ++i) {
      const std::vector<BufferId> written = ir::writes(graph_.nodes[i]);
      if (std::ranges::find(written, buffer) == written.end()) continue;
      if (map || graph_.nodes[i].kind != ir::NodeKind::kMap) return std::nullopt;
      map = graph_.nodes[i];
      at = i;
    }
    if (!map || !is_unchanged(*map, at)) return std::nullopt;
    drop_extent_1_loops(*map, graph_);
    return can_inline(*map, store_of(*map, buffer)) ? map : std::nullopt;
  }

  static const ir::Store& store_of(const Node& node, BufferId buffer) {
    static const ir::Store none = {ir::kNone, {}, 0, 0, ir::StoreMode::kMaximum};  // Cannot be inlined.
    const auto store = std::ranges::find_if(node.stores, [&](const ir::Store& s) { return s.buffer == buffer; });
    return store == node.stores.end() ? none : *store;
  }

  /// True if no node between `at` and the attention writes to what the node reads.
  bool is_unchanged(const Node& node, ir::NodeId at) const {
    const std::vector<BufferId> read = ir::reads(node);
    for (ir::NodeId i = at; i < attention_; ++i)
      for (const BufferId b : ir::writes(graph_.nodes[i]))
        if (std::ranges::find(read, b) != read.end()) return false;
    return true;
  }

  bool is_worth_it(BufferId buffer, const Node& node) const {
    return op_cost(node) <= kCheap || typical_product(graph_, graph_.buffers[buffer].sizes) > kManyElements;
  }

  bool inline_one(BufferId buffer) {
    const std::optional<Node> node = producer(buffer);
    if (!node) return false;
    inline_producer(body_, *node, store_of(*node, buffer), graph_);
    return true;
  }

  const ir::Graph& graph_;
  const ir::NodeId attention_;
  Node body_;
};

/// True if computing the mask for each score is better than storing it.
bool should_compute(const ir::Graph& graph, const ir::View& mask, const Node& body) {
  const ir::Shape& sizes = graph.buffers[mask.buffer].sizes;
  const bool known = std::ranges::all_of(sizes, [](const IndexExpr& size) { return size.is_const(); });
  if (!known || typical_bytes(graph, mask.buffer) >= kLargeBytes) return true;
  int readers = 0;
  for (const Node& node : graph.nodes) {
    if (node.kind == ir::NodeKind::kReduce) continue;  // The blocks of the mask compute it again, too.
    const std::vector<BufferId> read = ir::reads(node);
    readers += std::ranges::find(read, mask.buffer) != read.end();
  }
  const bool once = typical_product(graph, mask.sizes) <= typical_product(graph, sizes);
  return readers <= 2 && op_cost(body) <= (once ? kMaxCost : kMaxSharedCost);
}

}  // namespace

void compute_masks(Schedule& schedule, const Caps&) {
  ir::Graph& graph = schedule.graph;
  const std::vector<bool> visible = visible_buffers(graph);
  for (ir::NodeId id = 0; id < static_cast<ir::NodeId>(graph.nodes.size()); ++id) {
    Node& node = graph.nodes[id];
    if (node.kind != ir::NodeKind::kAttention || !node.attention.masked) continue;
    const ir::View& mask = node.operands[node.attention.kind == ir::AttentionKind::kForward ? 3 : 6];
    if (visible[mask.buffer]) continue;
    MaskBody body(graph, id, mask);
    if (!body.collect(mask.buffer) || !should_compute(graph, mask, body.node())) continue;
    node.reduce_sizes = mask.sizes;
    node.body = body.added();
  }
}

}  // namespace ocl::schedule
