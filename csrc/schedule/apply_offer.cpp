// csrc/schedule/apply_offer.cpp: makes the buffers and nodes of an offer: copies, packs, zeros, sums of slices.
#include "csrc/schedule/apply_offer.h"

#include "csrc/ir/append.h"
#include "csrc/ir/facts.h"

namespace ocl::schedule {

namespace {

/// The loops of a node that stores into a whole buffer, one element an iteration.
std::vector<IndexExpr> loops(const ir::Shape& sizes) {
  std::vector<IndexExpr> coords;
  for (size_t d = 0; d < sizes.size(); ++d) coords.push_back(IndexExpr::loop(static_cast<int>(d)));
  return coords;
}

/// A node over the elements of a buffer, and its body while ops are added.
struct Nest {
  ir::Node node;

  Nest(ir::NodeKind kind, const ir::Origin& origin, const ir::Shape& sizes) {
    node.kind = kind;
    node.origin = origin;
    node.sizes = sizes;
  }
  void store(BufferId buffer, int value) {
    ir::Store store;
    store.buffer = buffer;
    store.index = loops(node.sizes);
    store.value = value;
    node.stores = {store};
  }
};

/// What is needed to make the node of a preparation.
struct Maker {
  ir::Graph& graph;
  const ir::Origin& origin;
  BufferId to;
  const ir::Buffer& buffer() const { return graph.buffers[to]; }

  ir::Node operator()(const Copy& copy) const {
    Nest nest(ir::NodeKind::kMap, origin, buffer().sizes);
    const ir::Ranges ranges = graph.ranges(&nest.node);
    std::vector<int> mask;
    for (const auto& [value, limit] : copy.inside) {
      if (ranges.known_less(value, limit)) continue;
      const int left = push_index(nest.node.body, ir::simplify(value, ranges)),
                right = push_index(nest.node.body, ir::simplify(limit, ranges));
      const int test = push(nest.node.body, ir::OpCode::k_lt, DType::kBool, {left, right});
      mask = {mask.empty() ? test : push(nest.node.body, ir::OpCode::k_logical_and, DType::kBool, {mask[0], test})};
    }
    std::map<ir::Symbol, IndexExpr> with;
    for (size_t d = 0; d < copy.coords.size(); ++d)
      with.emplace(ir::Symbol{ir::SymbolKind::kLoop, static_cast<int>(d)}, copy.coords[d]);
    std::vector<IndexExpr> coords;
    for (const IndexExpr& e : copy.view.coords) coords.push_back(ir::simplify(ir::substitute(e, with), ranges));
    nest.store(
        to, push_load(nest.node.body, ir::compute_type(buffer().dtype), copy.view.buffer, std::move(coords), std::move(mask)));
    return std::move(nest.node);
  }

  ir::Node operator()(const Zeros&) const {
    Nest nest(ir::NodeKind::kMap, origin, buffer().sizes);
    nest.store(to, push(nest.node.body, ir::OpCode::kConstant, ir::compute_type(buffer().dtype)));
    return std::move(nest.node);
  }

  ir::Node operator()(const Pack& pack) const {
    ir::Node node;
    node.kind = ir::NodeKind::kPack;
    node.origin = origin;
    node.operands = {pack.view};
    node.operands[0].sizes[0] = buffer().sizes[0];
    node.sizes = buffer().sizes;
    node.outputs = {to};
    return node;
  }

  ir::Node operator()(ir::Node node) const {
    node.origin = origin;
    return node;
  }
};

/// Returns the sum of the slices, in order, into the node's output.
ir::Node sum_of_slices(const ir::Graph& graph, const Offer& offer) {
  const BufferId whole = offer.node.outputs[0];
  const ir::Shape& sizes = graph.buffers[whole].sizes;
  Nest nest(ir::NodeKind::kReduce, offer.node.origin, sizes);
  nest.node.reduce_sizes = {IndexExpr(offer.splits)};
  nest.node.reduction = ir::reduction_code("sum");
  std::vector<IndexExpr> coords = loops(sizes);
  coords[0] = IndexExpr::reduce(0) * sizes[0] + coords[0];
  nest.node.reduced = {push_load(nest.node.body, DType::kF32, offer.slices, std::move(coords))};
  nest.store(whole, 0);
  return std::move(nest.node);
}

}  // namespace

void apply_offer(ir::Graph& graph, Offer offer, std::vector<ir::Node>& nodes, std::map<ir::NodeId, TemplateLaunch>& launches) {
  for (auto& [id, buffer] : offer.layouts) graph.buffers[id].strides = std::move(buffer.strides);
  for (ir::Buffer& buffer : offer.buffers) graph.add_buffer(std::move(buffer));
  for (Preparation& preparation : offer.before) {
    if (auto* pack = std::get_if<Pack>(&preparation.how))
      launches.emplace(static_cast<ir::NodeId>(nodes.size()), std::move(pack->launch));
    nodes.push_back(std::visit(Maker{graph, offer.node.origin, preparation.buffer}, preparation.how));
  }
  std::vector<ir::Node> after;
  if (offer.slices != ir::kNone) {
    after.push_back(sum_of_slices(graph, offer));
    offer.node.outputs = {offer.slices};
  }
  launches.emplace(static_cast<ir::NodeId>(nodes.size()), std::move(offer.launch));
  nodes.push_back(std::move(offer.node));
  for (ir::Node& node : after) nodes.push_back(std::move(node));
}

}  // namespace ocl::schedule
