// csrc/schedule/conv_statistics.cpp: pass: lets the kernel of a convolution compute mean and variance of its output.
#include "csrc/schedule/conv_statistics.h"

#include <algorithm>
#include <optional>
#include <set>

#include "csrc/ir/append.h"
#include "csrc/ir/facts.h"
#include "csrc/schedule/body.h"
#include "csrc/schedule/split_reductions.h"

namespace ocl::schedule {

namespace {

/// True if `reduce` computes the statistics of each channel of `conv`, over all other dimensions, from the buffer
/// `stored`.
bool reads_channels(const Graph& graph, const Node& conv, ir::BufferId stored, const Node& reduce) {
  if (reduce.kind != ir::NodeKind::kReduce || reduce.reduction != ir::ReductionCode::k_welford ||
      reduce.stage != ir::ReductionStage::kWhole || reduce.body.ops.size() != 1 || reduce.sizes.size() != 1)
    return false;
  const ir::Op& load = reduce.body.ops[0];
  if (load.code != ir::OpCode::kLoad || !load.args.empty() || load.buffer != stored || !(load.index[1] == IndexExpr::loop(0)) ||
      !(reduce.sizes[0] == conv.sizes[1]))
    return false;
  const ir::Ranges ranges = graph.ranges();
  std::set<size_t> loops;  // Loops of the reduction that run over a whole dimension.
  for (const size_t d : {0u, 2u, 3u}) {
    bool whole = load.index[d].is_const(0) && conv.sizes[d].is_const(1);
    for (size_t r = 0; r < reduce.reduce_sizes.size() && !whole; ++r)
      whole = load.index[d] == IndexExpr::reduce(static_cast<int>(r)) &&
              ir::simplify(reduce.reduce_sizes[r] - conv.sizes[d], ranges).is_const(0) && loops.insert(r).second;
    if (!whole) return false;
  }
  for (size_t r = 0; r < reduce.reduce_sizes.size(); ++r)
    if (!loops.count(r) && !reduce.reduce_sizes[r].is_const(1)) return false;
  return true;
}

/// A Map that adds a bias per channel to a convolution's output and stores the dtype of its operands. Nothing else reads
/// that output.
struct BiasMap {
  NodeId map = ir::kNone;
  ir::BufferId bias = ir::kNone, stored = ir::kNone;
};

/// For each buffer: the number of nodes that write it, the number of nodes and results that read it, and the last node
/// that reads it.
struct Uses {
  std::vector<int> writers, readers;
  std::vector<NodeId> reader;
  explicit Uses(const Graph& graph)
      : writers(graph.buffers.size(), 0), readers(graph.buffers.size(), 0), reader(graph.buffers.size(), ir::kNone) {
    for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
      for (const ir::BufferId buffer : ir::writes(graph.nodes[id])) ++writers[buffer];
      for (const ir::BufferId buffer : ir::reads(graph.nodes[id])) {
        ++readers[buffer];
        reader[buffer] = id;
      }
    }
    for (const ir::Output& output : graph.outputs) ++readers[output.buffer];
  }
};

/// True if `index` has the given loops as its coordinates, in this order. A loop of extent 1 may be written as 0.
bool is_element(const std::vector<IndexExpr>& index, const std::vector<int>& loops, const ir::Shape& sizes) {
  if (index.size() != loops.size()) return false;
  for (size_t d = 0; d < index.size(); ++d)
    if (!(index[d] == IndexExpr::loop(loops[d])) && !(index[d].is_const(0) && sizes[loops[d]].is_const(1))) return false;
  return true;
}

/// Returns the Map that adds a bias to the output of `conv`; nullopt if there is none, or if `conv` cannot add the bias.
std::optional<BiasMap> biased(const Graph& graph, NodeId conv, const Uses& uses) {
  const ir::BufferId output = graph.nodes[conv].outputs[0];
  const ir::DType dtype = graph.buffers[graph.nodes[conv].operands[0].buffer].dtype;
  const NodeId id = uses.reader[output];
  if (uses.readers[output] != 1 || id == ir::kNone || graph.nodes[id].kind != ir::NodeKind::kMap) return std::nullopt;
  const Node& map = graph.nodes[id];
  const std::vector<ir::Op>& ops = map.body.ops;
  const bool rounds = ops.size() == 4 && ops[3].code == ir::OpCode::kCast && ops[3].args == std::vector{2};
  if ((ops.size() != 3 && !rounds) || ops[2].code != ir::OpCode::k_add || !(map.sizes == graph.nodes[conv].sizes) ||
      map.stores.size() != 1)
    return std::nullopt;
  const ir::Store& store = map.stores[0];
  if (store.value != static_cast<int>(ops.size()) - 1 || ir::is_partial(store) ||
      !is_element(store.index, {0, 1, 2, 3}, map.sizes) || uses.writers[store.buffer] != 1 ||
      graph.buffers[store.buffer].dtype != dtype)
    return std::nullopt;
  if (ops[2].args != std::vector{0, 1} && ops[2].args != std::vector{1, 0}) return std::nullopt;
  const auto loads = [&](const ir::Op& op, const std::vector<int>& loops) {
    return op.code == ir::OpCode::kLoad && op.args.empty() && is_element(op.index, loops, map.sizes);
  };
  const size_t first = ops[0].buffer == output ? 0 : 1;
  const ir::Op& bias = ops[1 - first];
  if (!loads(ops[first], {0, 1, 2, 3}) || ops[first].buffer != output || !loads(bias, {1})) return std::nullopt;
  const ir::Buffer& buffer = graph.buffers[bias.buffer];
  if (buffer.dtype != dtype || !(buffer.sizes[0] == map.sizes[1]) || (buffer.strides && !(*buffer.strides)[0].is_const(1)))
    return std::nullopt;
  for (NodeId between = conv + 1; between < id; ++between) {
    const std::vector<ir::BufferId> written = ir::writes(graph.nodes[between]);
    // A bias that is computed only after the convolution runs cannot be added by it.
    if (std::find(written.begin(), written.end(), bias.buffer) != written.end()) return std::nullopt;
  }
  return BiasMap{id, bias.buffer, store.buffer};
}

/// Lets the convolution add the bias and round the sum. The map becomes a copy.
void take_bias(Graph& graph, NodeId conv, const BiasMap& biased, TemplateLaunch& launch) {
  Node& map = graph.nodes[biased.map];
  const ir::BufferId output = graph.nodes[conv].outputs[0];
  const auto load =
      std::find_if(map.body.ops.begin(), map.body.ops.end(), [&](const ir::Op& op) { return op.buffer == output; });
  map.body.ops = {ir::Op(*load)};
  map.stores[0].value = 0;
  graph.buffers[output].dtype = graph.buffers[biased.stored].dtype;
  ir::Buffer& bias = graph.buffers[biased.bias];
  if (!bias.strides) bias.strides = ir::contiguous_strides(bias.sizes);
  graph.nodes[conv].operands.push_back({biased.bias, bias.sizes, {IndexExpr::loop(0)}});
  launch.buffer("bias", {biased.bias, 0});
  launch.defines.emplace_back("BIAS", "1");
}

/// Returns the number of slices of a column of tiles: the fewest slices for which the work-groups need about as many
/// waves as with one tile per slice. tiles: number of tiles in the column; others: number of columns of tiles; groups:
/// work-groups that run at the same time.
int64_t slice_count(int64_t tiles, int64_t others, int64_t groups) {
  constexpr double kTolerance = 1.02;
  const auto waves = [&](int64_t slices) { return (slices * others + groups - 1) / groups * ((tiles + slices - 1) / slices); };
  int64_t slices = 1;
  while (static_cast<double>(waves(slices)) > kTolerance * static_cast<double>(waves(tiles))) ++slices;
  return slices;
}

/// Sets the launch's work-groups and its argument `slices`. Returns the number of slices.
IndexExpr cut_into_slices(const Graph& graph, const Node& conv, TemplateLaunch& launch) {
  const TemplateLaunch::Statistics& form = launch.statistics;
  const IndexExpr tiles = ir::ceildiv(form.rows, form.tile_rows);
  const IndexExpr columns = ir::ceildiv(ir::floordiv(conv.sizes[1], conv.convolve.groups), form.tile_columns);
  const int64_t at_once = std::max<int64_t>(form.groups / conv.convolve.groups, 1);
  const IndexExpr slices = ir::simplify(
      ir::min(tiles, slice_count(static_cast<int64_t>(typical(graph, tiles)), columns.constant(), at_once)), graph.ranges());
  launch.arg("slices", slices);
  launch.groups[0] = ir::min(slices * columns, at_once);
  return slices;
}

/// Adds the convolution's second output, [3 (mean, m2, count), slices, channels], and selects the kernel that stores
/// it.
void store_statistics(Graph& graph, Node& conv, TemplateLaunch& launch) {
  const TemplateLaunch::Statistics& form = launch.statistics;
  const IndexExpr slices = form.slices ? *form.slices : cut_into_slices(graph, conv, launch);
  ir::Buffer buffer;
  buffer.dtype = ir::DType::kF32;
  buffer.sizes = {3, slices, conv.sizes[1]};
  buffer.strides = ir::contiguous_strides(buffer.sizes);
  conv.outputs.push_back(graph.add_buffer(buffer));
  launch.kernel = *form.kernel;
  launch.defines.emplace_back("STATISTICS", "1");
  launch.stores.dim1 = 2;
  launch.variant += " with statistics";
}

/// Turns `reduce` into the final step of a reduction, which merges the slices.
void merge_slices(const Graph& graph, Node& reduce, ir::BufferId slices) {
  reduce.stage = ir::ReductionStage::kFinal;
  reduce.reduce_sizes = {graph.buffers[slices].sizes[1]};
  reduce.body.ops.clear();
  reduce.reduced.clear();
  for (int i = 0; i < ir::facts(reduce.reduction).accumulators; ++i)
    reduce.reduced.push_back(push_load(reduce.body, ir::DType::kF32, slices, {i, IndexExpr::reduce(0), IndexExpr::loop(0)}));
}

/// True if not reading the output again saves time. A small output is still in the caches, so reading it costs less
/// than computing the statistics in the convolution's kernel. On a GPU, a reduction that is not split can be fused with
/// the ops after it, so it stays.
bool is_profitable(const Graph& graph, const Node& conv, const Node& reduce, const Caps& caps) {
  constexpr double kLeastBytes = 8 << 20, kLeastLength = 1024;
  const double bytes = typical_bytes(graph, conv.outputs[0]);
  if (!caps.is_cpu) return bytes >= static_cast<double>(caps.kept_output_bytes) && wants_slices(graph, reduce, caps);
  return bytes >= kLeastBytes && typical_product(graph, reduce.reduce_sizes) > kLeastLength;
}

}  // namespace

void conv_statistics(Schedule& schedule, const Caps& caps) {
  Graph& graph = schedule.graph;
  const Uses uses(graph);
  for (auto& [id, launch] : schedule.launches) {
    if (graph.nodes[id].kind != ir::NodeKind::kConvolve || !launch.statistics.kernel) continue;
    const ir::BufferId output = graph.nodes[id].outputs[0];
    if (uses.writers[output] != 1 || !graph.nodes[id].sizes[1].is_const()) continue;
    const std::optional<BiasMap> of_sum = biased(graph, id, uses);
    const ir::BufferId stored = of_sum ? of_sum->stored : output;
    // The kernel rounds its results to the dtype of its operands, so the dtypes must be equal.
    if (graph.buffers[stored].dtype != graph.buffers[graph.nodes[id].operands[0].buffer].dtype) continue;
    for (NodeId next = id + 1; next < static_cast<NodeId>(graph.nodes.size()); ++next) {
      Node& reduce = graph.nodes[next];
      if (!reads_channels(graph, graph.nodes[id], stored, reduce) || !is_profitable(graph, graph.nodes[id], reduce, caps))
        continue;
      if (graph.nodes[id].outputs.size() == 1) {
        store_statistics(graph, graph.nodes[id], launch);
        if (of_sum) take_bias(graph, id, *of_sum, launch);
      }
      merge_slices(graph, reduce, graph.nodes[id].outputs[1]);
      schedule.log.push_back(reduce.origin.op + ": merges the statistics that " + graph.nodes[id].origin.op + " leaves");
    }
  }
}

}  // namespace ocl::schedule
