// csrc/schedule/families/winograd/offer_item.cpp: offers kernels/winograd/item.cl, 3x3 convolutions with stride 1 and their
// data gradients on CPUs. Generated Maps transform the filters (G g, then (G g) G'). They fuse and batch like any node.
#include <array>
#include <map>

#include "csrc/schedule/families/winograd/filters.h"

namespace ocl::schedule {
namespace {

using ir::IndexExpr;

/// The body of a Map while ops are added.
struct Ops {
  std::vector<ir::Op>& ops;

  int add(ir::Op op) {
    ops.push_back(std::move(op));
    return static_cast<int>(ops.size()) - 1;
  }
  int op(ir::OpCode code, ir::DType dtype, std::vector<int> args) {
    ir::Op o;
    o.code = code;
    o.dtype = dtype;
    o.args = std::move(args);
    return add(o);
  }
  int index(const IndexExpr& e) {
    ir::Op o;
    o.code = ir::OpCode::kIndex;
    o.dtype = ir::DType::kI64;
    o.index = {e};
    return add(o);
  }
  int constant(double value) {
    ir::Op o;
    o.code = ir::OpCode::kConstant;
    o.dtype = ir::DType::kF32;
    o.constant.f = value;
    return add(o);
  }
  /// Adds ops for G * d with three values d. half: the op of the constant 0.5. Returns the numbers of the four results.
  std::array<int, 4> transform(const std::array<int, 3>& d, int half) {
    const int ends = op(ir::OpCode::k_add, ir::DType::kF32, {d[0], d[2]});
    const int even = op(ir::OpCode::k_mul, ir::DType::kF32, {ends, half});
    const int odd = op(ir::OpCode::k_mul, ir::DType::kF32, {d[1], half});
    const int sum = op(ir::OpCode::k_add, ir::DType::kF32, {even, odd}),
              difference = op(ir::OpCode::k_sub, ir::DType::kF32, {even, odd});
    return {d[0], sum, difference, d[2]};
  }
};

/// Adds a Map that writes the transformed filters, and returns them as U[16][panel][C][width]. For each (k, c), the Map
/// loads the 3x3 filter g and stores u[a][b] = sum over r, s of G[a][r] g[r][s] G[b][s], or zero where k >= K.
/// gradient: true for the data gradient, whose filters have k and c exchanged and r and s reversed.
Operand transformed_filters(Draft& draft, const ir::View& w, int64_t K, int64_t C, int width, bool gradient) {
  const IndexExpr panels = ir::ceildiv(K, width);
  ir::Buffer result;
  result.dtype = ir::DType::kF32;
  result.sizes = {16, panels, C, width};
  result.strides = ir::contiguous_strides(result.sizes);
  const ir::BufferId buffer = draft.add(result);

  ir::Node node;
  node.kind = ir::NodeKind::kMap;
  node.sizes = {panels, C, width};
  ir::Ranges ranges = draft.graph.ranges();
  for (int d = 0; d < 3; ++d) ranges.set_extent({ir::SymbolKind::kLoop, d}, node.sizes[d]);
  const IndexExpr k = ir::simplify(IndexExpr::loop(0) * width + IndexExpr::loop(2), ranges), c = IndexExpr::loop(1);
  Ops ops{node.body.ops};
  int mask = ir::kNone;
  if (K % width != 0) {
    const int left = ops.index(k), right = ops.index(K);
    mask = ops.op(ir::OpCode::k_lt, ir::DType::kBool, {left, right});
  }
  const int half = ops.constant(0.5);
  std::array<std::array<int, 3>, 4> half_done;  // G g.
  for (int s = 0; s < 3; ++s) {
    std::array<int, 3> column;
    for (int r = 0; r < 3; ++r) {
      const std::vector<IndexExpr> coords =
          gradient ? std::vector<IndexExpr>{c, k, 2 - r, 2 - s} : std::vector<IndexExpr>{k, c, r, s};
      std::map<ir::Symbol, IndexExpr> with;
      for (int d = 0; d < 4; ++d) with.emplace(ir::Symbol{ir::SymbolKind::kLoop, d}, coords[d]);
      ir::Op load;
      load.code = ir::OpCode::kLoad;
      load.dtype = ir::DType::kF32;
      load.buffer = w.buffer;
      if (mask != ir::kNone) load.args = {mask};
      for (const IndexExpr& e : w.coords) load.index.push_back(ir::simplify(ir::substitute(e, with), ranges));
      column[r] = ops.add(load);
    }
    const std::array<int, 4> done = ops.transform(column, half);
    for (int a = 0; a < 4; ++a) half_done[a][s] = done[a];
  }
  for (int a = 0; a < 4; ++a) {
    const std::array<int, 4> done = ops.transform(half_done[a], half);
    for (int b = 0; b < 4; ++b) {
      ir::Store store;
      store.buffer = buffer;
      store.index = {a * 4 + b, IndexExpr::loop(0), c, IndexExpr::loop(2)};
      store.value = done[b];
      node.stores.push_back(store);
    }
  }
  draft.prepare(buffer, std::move(node));
  return Operand{{buffer, 0}, *result.strides};
}

}  // namespace

void offer_winograd_item(Draft& draft) {
  const ir::Node& node = draft.node();
  const ir::ConvolveAttrs& conv = node.convolve;
  const bool gradient = conv.kind == ir::ConvolveKind::kData;
  const ir::View &x = node.operands[0], &w = node.operands[1];
  const int64_t C = x.sizes[1].constant(), K = node.sizes[1].constant(), count = typical(winograd_patches(node), 1024);
  const Caps& caps = draft.caps;
  const int vw = caps.vector_floats;
  const Operand input = channels_last_image(draft, x);
  draft.lay_out(node.outputs[0], kChannelsLast);
  const ItemTile tile = choose_item_tile(draft, 24, K);
  const int width = tile.vectors * vw;
  const Operand filters = transformed_filters(draft, w, K, C, width, gradient);

  // A block of tiles takes 16 * block * (C + width) floats and should stay within 1 MB. If there are few tiles, a block
  // has all tiles of a core, because loading the filters then costs more.
  const int64_t panels = (K + width - 1) / width, pitch = (C + vw - 1) / vw * vw, units = caps.units;
  const int64_t fits = std::max<int64_t>(tile.rows, (1 << 20) / (64 * (pitch + width)));
  int64_t items = 2 * units, block = std::min<int64_t>(fits, 24), shares = 1;
  const bool few_tiles = count < items * 24;
  // A work-item takes all tiles, and a share of the panels.
  if (few_tiles) {
    items = 1;
    block = std::min<int64_t>(count, 192);
    shares = std::min<int64_t>(panels, 2 * units);
  }
  block = (block + tile.rows - 1) / tile.rows * tile.rows;
  const int64_t panels_per_item = (panels + shares - 1) / shares;
  shares = (panels + panels_per_item - 1) / panels_per_item;

  TemplateLaunch& launch = draft.launch();
  launch.kind = "winograd";
  launch.variant = "F(2,3) " + std::to_string(tile.rows) + "x" + std::to_string(width) + ", blocks of " + std::to_string(block);
  define_types(draft, launch, vw);
  define(launch, {{"MR", tile.rows}, {"NV", tile.vectors}, {"WHOLE_VECTORS", K % vw == 0 && C % vw == 0}});
  launch.buffers({{"x", input.input}, {"u", filters.input}, {"zeros", zero_row(draft, C)}});
  launch.scratch_elements = items * shares * 16 * block * (pitch + width);
  const int pad_h = gradient ? 2 - conv.padding[0] : conv.padding[0], pad_w = gradient ? 2 - conv.padding[1] : conv.padding[1];
  launch.args({{"batch", node.sizes[0]}, {"C", C}, {"K", K}, {"pad_h", pad_h}, {"pad_w", pad_w}});
  launch.args({{"in_h", x.sizes[2]}, {"in_w", x.sizes[3]}, {"out_h", node.sizes[2]}, {"out_w", node.sizes[3]}});
  launch.args({{"tile_block", block}, {"panels_per_item", panels_per_item}});
  pass_image(launch, "x", input, false);
  launch.groups = {items, shares, 1};
  store_along(launch, 1, vw);
}

}  // namespace ocl::schedule
