// csrc/schedule/families/winograd/offer_item.cpp: offers kernels/winograd/item.cl, 3x3 convolutions with stride 1 and their
// data gradients on CPUs. Generated Maps transform the filters (G g, then (G g) H'). They fuse and batch like any node.
#include <array>
#include <limits>
#include <map>
#include <tuple>

#include "csrc/ir/append.h"
#include "csrc/schedule/families/winograd/filters.h"

namespace ocl::schedule {
namespace {

/// Unused floats behind the filters of each point, so that the points of a filter are in different sets of the caches.
constexpr int kPointGap = 80;

/// The body of a Map while ops are added.
struct Ops {
  ir::Body& body;

  int add(int a, int b) { return push(body, ir::OpCode::k_add, ir::DType::kF32, {a, b}); }
  int sub(int a, int b) { return push(body, ir::OpCode::k_sub, ir::DType::kF32, {a, b}); }
  int scaled(int a, double by) { return push(body, ir::OpCode::k_mul, ir::DType::kF32, {a, push_constant(body, by)}); }
  /// Adds ops for the filter transform of three values g: the polynomial g at `outputs` + 1 points (see
  /// kernels/winograd/item.cl), divided by the product of the point's distances from the others, and g[2] for infinity.
  /// outputs: 2 or 4. Returns the numbers of the outputs + 2 results.
  std::vector<int> transform(const std::array<int, 3>& g, int outputs) {
    std::vector<int> points;
    if (outputs == 2) {
      const int even = scaled(add(g[0], g[2]), 0.5), odd = scaled(g[1], 0.5);
      points = {g[0], add(even, odd), sub(even, odd)};
    } else {
      constexpr double kA = 0.625, kB = 1.5, kAA = kA * kA, kBB = kB * kB;
      points = {scaled(g[0], 1 / (kAA * kBB))};
      for (const auto& [p, product] : {std::pair{kA, 2 * kAA * (kAA - kBB)}, {kB, 2 * kBB * (kBB - kAA)}}) {
        const int even = add(scaled(g[0], 1 / product), scaled(g[2], p * p / product)), odd = scaled(g[1], p / product);
        points.insert(points.end(), {add(even, odd), sub(even, odd)});
      }
    }
    points.push_back(g[2]);
    return points;
  }
};

/// Adds a Map that writes the transformed filters for tiles of 2 x `columns` outputs, and returns them as
/// U[4*(columns + 2)][panel][C][width]. For each (k, c), the Map loads the 3x3 filter g and stores u[a][b] = sum over r, s of
/// G[a][r] g[r][s] H[b][s], or zero where k >= K.
/// gradient: true for the data gradient, whose filters have k and c exchanged and r and s reversed.
Operand transformed_filters(Draft& draft, const ir::View& w, int64_t K, int64_t C, int width, int columns, bool gradient) {
  const IndexExpr panels = ir::ceildiv(K, width);
  ir::Buffer result;
  result.dtype = ir::DType::kF32;
  result.sizes = {4 * (columns + 2), panels, C, width};
  result.strides = ir::contiguous_strides(result.sizes);
  (*result.strides)[0] = (*result.strides)[0] + kPointGap;
  const ir::BufferId buffer = draft.add(result);

  ir::Node node;
  node.kind = ir::NodeKind::kMap;
  node.sizes = {panels, C, width};
  ir::Ranges ranges = draft.graph.ranges();
  for (int d = 0; d < 3; ++d) ranges.set_extent({ir::SymbolKind::kLoop, d}, node.sizes[d]);
  const IndexExpr k = ir::simplify(IndexExpr::loop(0) * width + IndexExpr::loop(2), ranges), c = IndexExpr::loop(1);
  Ops ops{node.body};
  int mask = ir::kNone;
  if (K % width != 0) {
    const int left = push_index(node.body, k), right = push_index(node.body, K);
    mask = push(node.body, ir::OpCode::k_lt, ir::DType::kBool, {left, right});
  }
  std::array<std::array<int, 3>, 4> half_done;  // G g
  for (int s = 0; s < 3; ++s) {
    std::array<int, 3> column;
    for (int r = 0; r < 3; ++r) {
      const std::vector<IndexExpr> coords =
          gradient ? std::vector<IndexExpr>{c, k, 2 - r, 2 - s} : std::vector<IndexExpr>{k, c, r, s};
      std::map<ir::Symbol, IndexExpr> with;
      for (int d = 0; d < 4; ++d) with.emplace(ir::Symbol{ir::SymbolKind::kLoop, d}, coords[d]);
      std::vector<IndexExpr> at;
      for (const IndexExpr& e : w.coords) at.push_back(ir::simplify(ir::substitute(e, with), ranges));
      column[r] =
          push_load(node.body, ir::DType::kF32, w.buffer, at, mask == ir::kNone ? std::vector<int>{} : std::vector{mask});
    }
    const std::vector<int> done = ops.transform(column, 2);
    for (int a = 0; a < 4; ++a) half_done[a][s] = done[a];
  }
  for (int a = 0; a < 4; ++a) {
    const std::vector<int> done = ops.transform(half_done[a], columns);
    for (int b = 0; b < columns + 2; ++b) {
      ir::Store store;
      store.buffer = buffer;
      store.index = {a * (columns + 2) + b, IndexExpr::loop(0), c, IndexExpr::loop(2)};
      store.value = done[b];
      node.stores.push_back(store);
    }
  }
  draft.prepare(buffer, std::move(node));
  return Operand{{buffer, 0}, *result.strides};
}

int64_t patches(const ir::Node& node, int columns) { return typical(winograd_patches(node, columns), 2048 / columns); }

/// Returns the columns of a tile of outputs, 2 or 4, that need fewer multiplications. The choice is the knob "columns".
int choose_columns(Draft& draft) {
  const bool wide = patches(draft.node(), 4) * 24 < patches(draft.node(), 2) * 16;
  return static_cast<int>(draft.choices().pick("columns", wide ? std::vector<int64_t>{4, 2} : std::vector<int64_t>{2, 4}));
}

/// How blocks of tiles and panels of channels are divided: `items` times `shares` work-items, and tiles of a block.
struct Division {
  int64_t items, shares, block;
};

/// Picks the division in which the busiest compute unit has the least work. Each block costs as much as its tiles and those 8
/// whose products take as long as loading the filters. `fits`: tiles of a block that stay within the cache.
Division divide(int64_t tiles, int64_t panels, int64_t rows, int64_t fits, int64_t units) {
  const int64_t usual = parts(std::min<int64_t>(fits, 24), rows) * rows;
  Division best{};
  int64_t least = std::numeric_limits<int64_t>::max();
  const auto consider = [&](Division division, int64_t blocks_of_unit) {
    const int64_t work = blocks_of_unit * (division.block + 8);
    if (work < least) std::tie(best, least) = std::tuple(division, work);
  };
  if (tiles >= 2 * units * 24) {
    for (int64_t block = usual; block >= rows; block -= rows) {
      const int64_t blocks = parts(tiles, block);
      consider({blocks <= 4 * units ? blocks : 2 * units, 1, block}, parts(blocks, units));
    }
    return best;
  }
  // With few tiles, loading the filters costs more. So blocks are as large as possible, and a work-item has a share of the
  // panels.
  const int64_t panels_of_share = parts(panels, std::min(panels, 2 * units)), shares = parts(panels, panels_of_share);
  for (int64_t items = 1; items == 1 || items * rows * 2 <= tiles; ++items) {
    const int64_t block = parts(std::min<int64_t>(parts(tiles, items), 192), rows) * rows;
    consider({items, shares, block}, parts(items * shares, units) * parts(parts(tiles, block), items));
  }
  return best;
}

}  // namespace

void offer_winograd_item(Draft& draft) {
  const ir::Node& node = draft.node();
  const ir::ConvolveAttrs& conv = node.convolve;
  const bool gradient = conv.kind == ir::ConvolveKind::kData;
  const ir::View &x = node.operands[0], &w = node.operands[1];
  const int64_t C = x.sizes[1].constant(), K = node.sizes[1].constant();
  const Caps& caps = draft.caps;
  const int vw = caps.vector_floats;
  const Operand input = channels_last_image(draft, x);
  draft.lay_out(node.outputs[0], kChannelsLast);
  const ItemTile tile = choose_item_tile(draft, 24, K);
  const int width = tile.vectors * vw;
  const int columns = choose_columns(draft), points = 4 * (columns + 2);
  const int64_t count = patches(node, columns);
  const Operand filters = transformed_filters(draft, w, K, C, width, columns, gradient);

  const int64_t panels = parts(K, width), pitch = parts(C, vw) * vw;
  const int64_t fits = std::max<int64_t>(tile.rows, (1 << 20) / (4 * points * (pitch + width)));
  const Division division = divide(count, panels, tile.rows, fits, caps.units);
  const int64_t items = division.items, shares = division.shares, block = division.block;

  TemplateLaunch& launch = draft.launch();
  launch.kind = "winograd";
  launch.variant = "F(2x" + std::to_string(columns) + ") " + std::to_string(tile.rows) + "x" + std::to_string(width) +
                   ", blocks of " + std::to_string(block);
  define_types(draft, launch, vw);
  define(launch, {{"TILE_W", columns},
                  {"POINT_GAP", kPointGap},
                  {"MR", tile.rows},
                  {"NV", tile.vectors},
                  {"WHOLE_VECTORS", K % vw == 0 && C % vw == 0}});
  launch.buffers({{"x", input.input}, {"u", filters.input}, {"zeros", zero_row(draft, C)}});
  launch.scratch_elements = items * shares * points * (block * (pitch + width) + 2 * vw);
  const int pad_h = gradient ? 2 - conv.padding[0] : conv.padding[0], pad_w = gradient ? 2 - conv.padding[1] : conv.padding[1];
  launch.args({{"batch", node.sizes[0]}, {"C", C}, {"K", K}, {"pad_h", pad_h}, {"pad_w", pad_w}});
  launch.args({{"in_h", x.sizes[2]}, {"in_w", x.sizes[3]}, {"out_h", node.sizes[2]}, {"out_w", node.sizes[3]}});
  launch.args({{"tile_block", block}, {"panels_per_item", parts(panels, shares)}});
  pass_image(launch, "x", input, false);
  launch.groups = {items, shares, 1};
  store_along(launch, 1, vw);
}

}  // namespace ocl::schedule
