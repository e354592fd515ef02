// csrc/schedule/templates/item_operands.cpp: operands as strided memory; adds copies before a node and ordered sums
// after it.
#include "csrc/schedule/templates/item_operands.h"

#include <algorithm>
#include <map>

#include "csrc/ir/facts.h"
#include "csrc/support/error.h"

namespace ocl::schedule {

using ir::IndexExpr;

int64_t typical(const IndexExpr& e, int64_t otherwise) { return e.is_const() ? e.constant() : otherwise; }

bool constants(const std::vector<IndexExpr>& sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [](const IndexExpr& e) { return e.is_const(); });
}

bool loadable(const TemplateContext& context) {
  const ir::Node& node = context.graph.nodes[context.node];
  const ir::DType type = context.graph.buffers[node.operands[0].buffer].dtype;
  return type == context.graph.buffers[node.operands[1].buffer].dtype &&
         (type == ir::DType::kF32 || type == ir::DType::kF16 || type == ir::DType::kBF16);
}

void define(TemplateLaunch& launch, const std::string& name, int64_t value) {
  launch.defines.emplace_back(name, std::to_string(value));
}

void define_types(const TemplateContext& context, TemplateLaunch& launch, int vector_width) {
  const ir::Node& node = context.graph.nodes[context.node];
  const ir::DType type = context.graph.buffers[node.operands[0].buffer].dtype;
  define(launch, "VW", vector_width);
  if (type == ir::DType::kF16) define(launch, "IN_HALF", 1);
  if (type == ir::DType::kBF16) define(launch, "IN_BF16", 1);
}

void pass_image(TemplateLaunch& launch, const std::string& name, const Operand& image, bool channels) {
  launch.arg(name + "_n", image.strides[0]);
  launch.arg(name + "_h", image.strides[2]);
  launch.arg(name + "_w", image.strides[3]);
  if (channels) launch.arg(name + "_c", image.strides[1]);
}

void pass_window(TemplateLaunch& launch, const ir::ConvolveAttrs& conv) {
  launch.args({{"stride_h", conv.stride[0]}, {"stride_w", conv.stride[1]}});
  launch.args({{"pad_h", conv.padding[0]}, {"pad_w", conv.padding[1]}});
  launch.args({{"dilation_h", conv.dilation[0]}, {"dilation_w", conv.dilation[1]}});
}

namespace {

ir::Shape dense_strides(const ir::Shape& sizes, const std::vector<int>& order) {
  ir::Shape strides(sizes.size());
  IndexExpr step = 1;
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    strides[*d] = step;
    step = step * sizes[*d];
  }
  return strides;
}

std::vector<int> row_major(size_t rank) {
  std::vector<int> order(rank);
  for (size_t d = 0; d < rank; ++d) order[d] = static_cast<int>(d);
  return order;
}

ir::Ranges view_ranges(const ir::Graph& graph, const ir::Shape& sizes) {
  ir::Ranges ranges = graph.ranges();
  for (size_t d = 0; d < sizes.size(); ++d) ranges.set_extent({ir::SymbolKind::kLoop, static_cast<int>(d)}, sizes[d]);
  return ranges;
}

bool covers_buffer(const ir::Graph& graph, const ir::View& view) {
  const ir::Shape& sizes = graph.buffers[view.buffer].sizes;
  if (view.coords.size() != view.sizes.size()) return false;
  for (size_t d = 0; d < view.coords.size(); ++d)
    if (view.coords[d] != IndexExpr::loop(static_cast<int>(d)) || view.sizes[d] != sizes[d]) return false;
  return true;
}

}  // namespace

bool is_kept(const TemplateContext& context, const ir::View& view) {
  const ir::Buffer& buffer = context.graph.buffers[view.buffer];
  return context.keeps_parameters && buffer.role == ir::BufferRole::kInput && buffer.is_parameter;
}

bool is_written_by_loops(const TemplateContext& context, ir::BufferId buffer) {
  for (ir::NodeId i = context.node; i-- > 0;) {
    const std::vector<ir::BufferId> written = ir::writes(context.graph.nodes[static_cast<size_t>(i)]);
    if (std::find(written.begin(), written.end(), buffer) != written.end())
      return context.graph.nodes[static_cast<size_t>(i)].kind == ir::NodeKind::kMap;
  }
  return false;
}

void lay_out(ir::Graph& graph, ir::BufferId buffer, const std::vector<int>& order) {
  ir::Buffer& b = graph.buffers[buffer];
  if (!b.strides) b.strides = dense_strides(b.sizes, order);
}

std::optional<Operand> strided_operand(TemplateContext& context, const ir::View& view, const std::vector<int>& order) {
  ir::Graph& graph = context.graph;
  const size_t buffer_rank = graph.buffers[view.buffer].sizes.size();
  lay_out(graph, view.buffer, covers_buffer(graph, view) ? order : row_major(buffer_rank));
  const auto window = ir::strided(graph, view);
  if (!window) return std::nullopt;
  Operand operand;
  operand.input.buffer = view.buffer;
  operand.input.offset = window->offset;
  operand.strides = window->strides;
  return operand;
}

Operand copied_operand(TemplateContext& context, const ir::View& view, ir::Shape sizes, const std::vector<IndexExpr>& coords,
                       const std::vector<std::pair<IndexExpr, IndexExpr>>& inside, std::optional<ir::Shape> strides) {
  ir::Graph& graph = context.graph;
  const ir::Ranges ranges = view_ranges(graph, sizes);
  const ir::DType type = graph.buffers[view.buffer].dtype;
  ir::Buffer copy;
  copy.dtype = type;
  copy.sizes = sizes;
  copy.strides = strides ? *strides : dense_strides(sizes, row_major(sizes.size()));
  const ir::BufferId buffer = graph.add_buffer(copy);

  ir::Node node;
  node.kind = ir::NodeKind::kMap;
  node.origin = graph.nodes[context.node].origin;
  node.sizes = sizes;
  auto add = [&](ir::Op op) {
    node.body.ops.push_back(std::move(op));
    return static_cast<int>(node.body.ops.size()) - 1;
  };
  auto index = [&](const IndexExpr& e) {
    ir::Op op;
    op.code = ir::OpCode::kIndex;
    op.dtype = ir::DType::kI64;
    op.index = {ir::simplify(e, ranges)};
    return add(op);
  };
  int mask = ir::kNone;
  for (const auto& [value, limit] : inside) {
    if (ranges.known_less(value, limit)) continue;
    ir::Op less;
    less.code = ir::OpCode::k_lt;
    less.dtype = ir::DType::kBool;
    const int left = index(value), right = index(limit);
    less.args = {left, right};
    const int test = add(less);
    if (mask == ir::kNone) {
      mask = test;
    } else {
      ir::Op both;
      both.code = ir::OpCode::k_logical_and;
      both.dtype = ir::DType::kBool;
      both.args = {mask, test};
      mask = add(both);
    }
  }
  ir::Op load;
  load.code = ir::OpCode::kLoad;
  load.dtype = ir::compute_type(type);
  load.buffer = view.buffer;
  if (mask != ir::kNone) load.args = {mask};
  std::map<ir::Symbol, IndexExpr> with;
  for (size_t d = 0; d < coords.size(); ++d) with.emplace(ir::Symbol{ir::SymbolKind::kLoop, static_cast<int>(d)}, coords[d]);
  for (const IndexExpr& e : view.coords) load.index.push_back(ir::simplify(ir::substitute(e, with), ranges));
  int value = add(load);
  if (type != load.dtype) {
    ir::Op cast;
    cast.code = ir::OpCode::kCast;
    cast.dtype = type;
    cast.args = {value};
    value = add(cast);
  }
  ir::Store store;
  store.buffer = buffer;
  for (size_t d = 0; d < sizes.size(); ++d) store.index.push_back(IndexExpr::loop(static_cast<int>(d)));
  store.value = value;
  node.stores = {store};
  context.before.push_back(std::move(node));
  return Operand{{buffer, 0}, *copy.strides};
}

Operand dense_copy(TemplateContext& context, const ir::View& view, const std::vector<int>& order) {
  std::vector<IndexExpr> coords;
  for (size_t d = 0; d < view.sizes.size(); ++d) coords.push_back(IndexExpr::loop(static_cast<int>(d)));
  return copied_operand(context, view, view.sizes, coords, {}, dense_strides(view.sizes, order));
}

TemplateLaunch::Input zero_row(TemplateContext& context, const IndexExpr& count) {
  ir::Graph& graph = context.graph;
  const ir::Node& node = graph.nodes[context.node];
  ir::Buffer row;
  row.dtype = graph.buffers[node.operands[0].buffer].dtype;
  row.sizes = {count};
  row.strides = ir::contiguous_strides(row.sizes);

  ir::Node fill;
  fill.kind = ir::NodeKind::kMap;
  fill.origin = node.origin;
  fill.sizes = row.sizes;
  ir::Op zero;
  zero.code = ir::OpCode::kConstant;
  zero.dtype = ir::compute_type(row.dtype);
  fill.body.ops = {zero};
  if (row.dtype != zero.dtype) {
    ir::Op cast;
    cast.code = ir::OpCode::kCast;
    cast.dtype = row.dtype;
    cast.args = {0};
    fill.body.ops.push_back(cast);
  }
  ir::Store store;
  store.buffer = graph.add_buffer(row);
  store.index = {IndexExpr::loop(0)};
  store.value = static_cast<int>(fill.body.ops.size()) - 1;
  fill.stores = {store};
  context.before.push_back(std::move(fill));
  return {store.buffer, 0};
}

void split_output(TemplateContext& context, int64_t splits, const std::vector<int>& order) {
  ir::Graph& graph = context.graph;
  const ir::BufferId whole = graph.nodes[context.node].outputs[0];
  const ir::Shape sizes = graph.nodes[context.node].sizes;
  ir::Buffer parts;
  parts.dtype = ir::DType::kF32;
  parts.sizes = sizes;
  parts.sizes[0] = sizes[0] * splits;
  parts.strides = dense_strides(parts.sizes, order);
  const ir::BufferId partial = graph.add_buffer(parts);

  ir::Node sum;
  sum.kind = ir::NodeKind::kReduce;
  sum.origin = graph.nodes[context.node].origin;
  sum.sizes = sizes;
  sum.reduce_sizes = {IndexExpr(splits)};
  sum.reduction = ir::reduction_code("sum");
  ir::Op load;
  load.code = ir::OpCode::kLoad;
  load.dtype = ir::DType::kF32;
  load.buffer = partial;
  ir::Store store;
  store.buffer = whole;
  for (size_t d = 0; d < sizes.size(); ++d) {
    load.index.push_back(IndexExpr::loop(static_cast<int>(d)));
    store.index.push_back(IndexExpr::loop(static_cast<int>(d)));
  }
  load.index[0] = IndexExpr::reduce(0) * sizes[0] + load.index[0];
  sum.body.ops = {load};
  sum.reduced = {0};
  sum.stores = {store};
  context.after.push_back(std::move(sum));

  graph.nodes[context.node].outputs = {partial};
  graph.nodes[context.node].sizes = graph.buffers[partial].sizes;
}

Tile choose_tile(TemplateContext& context, int64_t rows, int64_t columns) {
  const Caps& caps = context.caps;
  // With 32 registers, a tile has 24 accumulators and NV + 1 other registers. With the 16 registers of 8-wide vectors,
  // it has 8 to 12 accumulators. A narrow tile loads more scalars per multiply-add.
  const bool many = caps.vector_floats != 8;
  const std::vector<std::pair<Tile, double>> tiles =
      many ? std::vector<std::pair<Tile, double>>{{{6, 4}, 1.0}, {{8, 3}, 1.02}, {{12, 2}, 1.03}, {{12, 1}, 1.5}}
           : std::vector<std::pair<Tile, double>>{{{6, 2}, 1.0}, {{10, 1}, 1.4}};
  std::vector<std::pair<double, Tile>> ranked;
  for (const auto& [tile, cost] : tiles) {
    const int64_t width = static_cast<int64_t>(tile.vectors) * caps.vector_floats;
    const int64_t area = (rows + tile.rows - 1) / tile.rows * tile.rows * ((columns + width - 1) / width * width);
    ranked.emplace_back(static_cast<double>(area) * cost, tile);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (const auto& [work, tile] : ranked)
    if (names.size() < kMostOptions) names.push_back(std::to_string(tile.rows) + "x" + std::to_string(tile.vectors));
  return ranked[context.choices.pick("tile", names)].second;
}

int choose_tiles_per_item(TemplateContext& context, int64_t tiles, int64_t other_items, int max_tiles) {
  int tiles_per_item = max_tiles;
  while (tiles_per_item > 1 &&
         (tiles + tiles_per_item - 1) / tiles_per_item * other_items < 4 * static_cast<int64_t>(context.caps.units))
    tiles_per_item /= 2;
  return static_cast<int>(
      context.choices.pick("run", {tiles_per_item, std::max(tiles_per_item / 2, 1), std::min(tiles_per_item * 2, max_tiles)}));
}

}  // namespace ocl::schedule
