// csrc/schedule/families/gemm/offer_item.cpp: offers kernels/gemm/item.cl, matrix products on CPUs. For few rows and a
// weight [N][K], it offers gemm/dot_item.cl. For bf16 and int8, it offers gemm/pairs_item.cl and gemm/dot_pairs_item.cl.
#include <algorithm>
#include <array>
#include <map>

#include "csrc/schedule/families/gemm/matrices.h"

namespace ocl::schedule {
namespace {

// With up to this many row tiles, a work-item packs B for itself. With more, a launch packs B first.
constexpr int kMostTiles = 48;
constexpr int kMostTilesOfPairs = 96;  // The same for the kernel of pairs, whose products are short beside packing.
constexpr int kMostPackedTiles = 32;   // The same for a work-item that also packs A.
// A matrix B with up to this many floats stays in the L2 cache, so every work-item reads it in place.
constexpr int64_t kL2Floats = 1 << 18;
// With up to this many bytes, A stays in the L1 cache while rows of B pass through it.
constexpr int64_t kL1Bytes = 32 << 10;
constexpr int64_t kPageFloats = 1024;  // Floats in a page of 4 KB.
constexpr int64_t kShortRow = 512;     // If rows of A have up to this many floats, the kernel prefetches them.

/// The matrix product whose kernel is chosen.
struct Product {
  IndexExpr batch, M, N, K, inner;
  int64_t rows, columns, batches;  // Typical values of M, N and batch.
  Matrices a, b;
};

/// pairs: for the kernel of pairs, which needs rows or columns of A that are contiguous.
Product product_of(Draft& draft, bool pairs = false) {
  const ir::Node& node = draft.node();
  Product p{node.sizes[0], node.sizes[1], node.sizes[2], node.reduce_sizes[0], inner_batch(draft), 0, 0, 0, {}, {}};
  p.rows = typical(p.M, 512), p.columns = typical(p.N, 512), p.batches = typical(p.batch, 8);
  std::optional<Matrices> a = matrices_in_place(draft, node.operands[0], p.inner),
                          b = matrices_in_place(draft, node.operands[1], p.inner);
  const bool slow = a && !a->col.is_const(1) && !a->row.is_const(1) && (pairs || p.columns >= 32);
  p.a = a && !slow ? *a : dense_matrices(draft, node.operands[0], p.inner);
  p.b = b ? *b : dense_matrices(draft, node.operands[1], p.inner);
  return p;
}

/// Uses a dot-product kernel, for few rows and a weight [N][K]. The kernels read both operands along K. Returns false if the
/// product has another form, or if `kernel` is not used for its type.
bool use_dot_product(Draft& draft, const Product& p, KernelId kernel) {
  const ir::DType type = draft.buffer(draft.node().operands[0].buffer).dtype;
  if (std::ranges::none_of(kernel_row(kernel).types, [&](const KernelRow::Checked& checked) {
        return storage_of(checked.type) == type && draft.caps.kernels.has(kernel, checked.type);
      }))
    return false;
  if (!p.M.is_const() || p.rows > 16 || !p.a.col.is_const(1) || !p.b.row.is_const(1) || p.b.col.is_const(1)) return false;
  const bool pairs = kernel == KernelId::k_gemm_dot_pairs_item;
  if (pairs && p.rows > 4 && p.rows * typical(p.K, 1024) * ir::size_bytes(type) > kL1Bytes) return false;
  TemplateLaunch& launch = draft.launch();
  const int mr = static_cast<int>(p.rows <= 8 ? p.rows : (p.rows + 1) / 2);
  int nr = std::clamp((draft.caps.vector_floats == 8 ? 12 : 24) / mr, 1, 8), mt = 0;
  if (pairs) {  // The lanes of up to 16 accumulators are added at once. A work-item stores vectors of 16 columns.
    nr = mr <= 2 ? 8 : mr <= 4 ? 4 : 2;
    mt = 16 / nr * choose_tiles_per_item(draft, (p.columns + 15) / 16, p.batches, 8);
    launch.stores.width = 16;
    launch.stores.vectors = Stores::Vectors::kSteps;
  } else {
    mt = choose_tiles_per_item(draft, (p.columns + nr - 1) / nr, p.batches, 16);
  }
  launch.kernel = kernel;
  launch.variant = std::to_string(mr) + "x" + std::to_string(nr) + (pairs ? " pairs along k" : " along k");
  define(launch, {{"MR", mr}, {"NR", nr}, {"MT", mt}});
  launch.buffers({{"a", p.a.input}, {"b", p.b.input}});
  launch.args({{"M", p.M}, {"N", p.N}, {"K", p.K}, {"inner", p.inner}, {"a_row", p.a.row}, {"b_col", p.b.col}});
  launch.args({{"a_outer", p.a.outer}, {"a_inner", p.a.inner}, {"b_outer", p.b.outer}, {"b_inner", p.b.inner}});
  launch.groups = {ir::ceildiv(p.N, nr * mt), p.batch, 1};
  return true;
}

/// A register tile, and the kernel's macro K_CHAINS: into how many sums along K each accumulator is split.
struct TileChoice {
  ItemTile tile;
  int sums_along_k = 1;
};

TileChoice tile_for(Draft& draft, const Product& p) {
  const int vw = draft.caps.vector_floats;
  TileChoice c{choose_item_tile(draft, p.rows, p.columns)};
  if (!p.M.is_const() || p.rows > 8) return c;
  // If there is one tile of rows, several sums along K hide the latency of multiply-adds.
  c.tile.rows = static_cast<int>(p.rows);
  c.tile.vectors = p.rows > 4 || vw == 8 ? 2 : 4;
  while (c.tile.vectors > 1 && p.columns % (c.tile.vectors * vw) != 0) c.tile.vectors /= 2;
  while (c.sums_along_k < 8 && c.tile.rows * c.tile.vectors * c.sums_along_k * 2 <= 8) c.sums_along_k *= 2;
  return c;
}

/// Returns B in panels of `width` columns. A copy makes them, because it fuses with the loops that write B.
Matrices fused_panels(Draft& draft, const Product& p, int width) {
  const ir::View& view = draft.node().operands[1];
  const IndexExpr column = IndexExpr::loop(1) * width + IndexExpr::loop(3);
  const bool shared = p.b.outer.is_const(0) && p.b.inner.is_const(0);
  const IndexExpr count = shared ? IndexExpr(1) : p.batch;
  const Operand packed = copied_operand(draft, view, {count, ir::ceildiv(p.N, width), p.K, width},
                                        {IndexExpr::loop(0), IndexExpr::loop(2), column}, {{column, p.N}});
  return {packed.input, shared ? IndexExpr(0) : packed.strides[0] * p.inner,
          shared || p.inner.is_const(1) ? IndexExpr(0) : packed.strides[0], 0, 0};
}

/// How the kernel reads B, and the number of tiles of a work-item.
struct Layout {
  int b_in_place;  // The kernel's macro B_IN_PLACE.
  int tiles_per_item;
};

/// Chooses the layout of B, and packs B into panels of `width` columns if that pays off.
Layout lay_out_b(Draft& draft, Product& p, const ItemTile& tile, int sums_along_k, int width) {
  const Matrices& b = p.b;
  const bool one_tile = p.M.is_const() && p.rows <= tile.rows;
  const int64_t row_tiles = (p.rows + tile.rows - 1) / tile.rows, panels = (p.columns + width - 1) / width * p.batches;
  const bool written_by_loops = is_written_by_loops(draft, b.input.buffer);
  // The values of an attention head may already have the form of one panel.
  const bool is_panel = b.col.is_const(1) && b.row.is_const(width) && p.N.is_const() && p.columns == width;
  const bool whole_tiles = b.col.is_const(1) && p.N.is_const() && p.columns % width == 0;
  const bool small = whole_tiles && sums_along_k == 1 && p.K.is_const() && p.K.constant() * p.columns <= kL2Floats;
  // Rows that are a multiple of a page apart compete for few sets of the cache. So each work-item packs its own panel.
  const bool read_in_place = small && typical(b.row, 0) % kPageFloats != 0;
  const bool packs = !is_panel && !small && (!b.col.is_const(1) || (row_tiles > kMostTiles && !written_by_loops));
  Layout layout{0, 1};
  if (!one_tile)
    layout.tiles_per_item =
        choose_tiles_per_item(draft, row_tiles, panels, packs || is_panel || read_in_place ? 8 : kMostTiles);
  if (is_panel)
    layout.b_in_place = one_tile ? 3 : 0;
  else if (!packs)
    layout.b_in_place = read_in_place || (one_tile && whole_tiles) ? 3 : 1;
  else if (written_by_loops)
    p.b = fused_panels(draft, p, width);
  else
    p.b = packed_panels(draft, draft.node().operands[1], b, p.inner, width);
  return layout;
}

/// The layout of A: rows in place, columns in place, or any strides.
int layout_of_a(const Matrices& a) { return a.col.is_const(1) ? 0 : a.row.is_const(1) ? 1 : 2; }

void set_tile(TemplateLaunch& launch, const ItemTile& tile, int tiles_per_item) {
  launch.stores.vectors = Stores::Vectors::kSteps;
  launch.stores.plain = true;
  define(launch, {{"MR", tile.rows}, {"NV", tile.vectors}, {"MT", tiles_per_item}});
}

void pass_product(TemplateLaunch& launch, const Product& p) {
  launch.buffers({{"a", p.a.input}, {"b", p.b.input}});
  launch.args({{"M", p.M}, {"N", p.N}, {"K", p.K}, {"inner", p.inner}});
  pass_matrix(launch, "a", p.a);
  pass_matrix(launch, "b", p.b);
}

}  // namespace

void offer_gemm_pairs_item(Draft& draft) {
  const int vw = draft.caps.vector_floats;
  const Product p = product_of(draft, true);
  TemplateLaunch& launch = draft.launch();
  launch.kind = "gemm";
  define_types(draft, launch, vw);
  store_along(launch, 2, 1, 3);
  if (use_dot_product(draft, p, KernelId::k_gemm_dot_pairs_item)) return;
  launch.stores.width = vw;
  ItemTile tile = choose_item_tile(draft, p.rows, p.columns);
  if (p.M.is_const()) tile.rows = static_cast<int>(std::min<int64_t>(tile.rows, p.rows));
  const int64_t width = static_cast<int64_t>(tile.vectors) * vw, panels = (p.columns + width - 1) / width * p.batches;
  const int a_layout = layout_of_a(p.a);
  const int tiles_per_item = choose_tiles_per_item(draft, (p.rows + tile.rows - 1) / tile.rows, panels,
                                                   a_layout == 0 ? kMostTilesOfPairs : kMostPackedTiles);
  launch.variant = std::to_string(tile.rows) + "x" + std::to_string(width) + " in pairs";
  set_tile(launch, tile, tiles_per_item);
  define(launch, {{"A_LAYOUT", a_layout}, {"B_LAYOUT", p.b.col.is_const(1) ? 0 : p.b.row.is_const(1) ? 1 : 2}});
  pass_product(launch, p);
  launch.groups = {ir::ceildiv(p.M, tile.rows * tiles_per_item), ir::ceildiv(p.N, width), p.batch};
}

void offer_gemm_item(Draft& draft) {
  const Caps& caps = draft.caps;
  const int vw = caps.vector_floats;
  Product p = product_of(draft);
  TemplateLaunch& launch = draft.launch();
  launch.kind = "gemm";
  define_types(draft, launch, vw);
  store_along(launch, 2, 1, 3);
  if (use_dot_product(draft, p, KernelId::k_gemm_dot_pairs_item) || use_dot_product(draft, p, KernelId::k_gemm_dot_item))
    return;

  const auto [tile, sums_along_k] = tile_for(draft, p);
  const int width = tile.vectors * vw;
  const int a_layout = layout_of_a(p.a);
  const Layout layout = lay_out_b(draft, p, tile, sums_along_k, width);
  launch.variant = std::to_string(tile.rows) + "x" + std::to_string(width) + (layout.b_in_place == 0 ? " packed" : " in place");
  launch.stores.width = vw;
  set_tile(launch, tile, layout.tiles_per_item);
  define(launch, {{"A_COL_MAJOR", a_layout}, {"B_IN_PLACE", layout.b_in_place}});
  define(launch, "WHOLE_VECTORS", p.N.is_const() && p.columns % vw == 0);
  if (sums_along_k > 1) define(launch, "K_CHAINS", sums_along_k);
  const bool short_rows = a_layout == 0 && p.K.is_const() && p.K.constant() <= kShortRow;
  const bool unforeseen = p.rows > tile.rows && (short_rows || a_layout == 1);
  if (caps.prefetch && (unforeseen || layout.b_in_place == 1)) define(launch, "PREFETCHES", 1);
  if (caps.prefetch && unforeseen) define(launch, "PREFETCH_A", 1);
  pass_product(launch, p);
  launch.groups = {ir::ceildiv(p.M, tile.rows * layout.tiles_per_item), ir::ceildiv(p.N, width), p.batch};
}

}  // namespace ocl::schedule
