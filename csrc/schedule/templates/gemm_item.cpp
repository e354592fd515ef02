// csrc/schedule/templates/gemm_item.cpp: matrix products on CPUs by kernels/gemm/item.cl, or gemm/dot_item.cl for few rows and
// a weight [N][K].
#include <algorithm>
#include <array>
#include <map>

#include "csrc/schedule/templates/choosers.h"
#include "csrc/schedule/templates/item_operands.h"
#include "csrc/schedule/templates/matrix_operands.h"

namespace ocl::schedule {
namespace {

using ir::IndexExpr;

constexpr int kMostTiles = 48;          // of rows to an item that packs rows of B for itself; more share a packed copy
constexpr int64_t kL2Floats = 1 << 18;  // of a B that every item reads where it is
constexpr int64_t kPageFloats = 1024;   // 4 KB
constexpr int64_t kShortRow = 512;      // of A: the kernel asks for the next ones itself

}  // namespace

bool choose_gemm_item(TemplateContext& context, TemplateLaunch& launch) {
  const ir::Node node = context.graph.nodes[context.node];
  if (node.kind != ir::NodeKind::kContract || !loadable(context)) return false;
  const Caps& caps = context.caps;
  const int vw = caps.vector_floats;
  const IndexExpr batch = node.sizes[0], M = node.sizes[1], N = node.sizes[2], K = node.reduce_sizes[0];
  const int64_t rows = typical(M, 512), columns = typical(N, 512), batches = typical(batch, 8);

  const IndexExpr inner = inner_batch(context);
  std::optional<Matrices> a = matrices_in_place(context, node.operands[0], inner),
                          b = matrices_in_place(context, node.operands[1], inner);
  if (!a || (!a->col.is_const(1) && !a->row.is_const(1) && columns >= 32)) a = dense_matrices(context, node.operands[0], inner);
  if (!b) b = dense_matrices(context, node.operands[1], inner);

  launch = TemplateLaunch{};
  launch.kind = "gemm";
  define_types(context, launch, vw);
  launch.store_coords = {0, 1, 2};
  launch.store_dim = 2;

  if (caps.kernels.has(KernelId::k_gemm_dot_item) && M.is_const() && rows <= 16 && a->col.is_const(1) && b->row.is_const(1) &&
      !b->col.is_const(1)) {
    const int accumulators = vw == 8 ? 12 : 24, mr = static_cast<int>(rows <= 8 ? rows : (rows + 1) / 2);
    const int nr = std::clamp(accumulators / mr, 1, 8), mt = choose_run(context, (columns + nr - 1) / nr, batches, 16);
    launch.kernel = KernelId::k_gemm_dot_item;
    launch.variant = std::to_string(mr) + "x" + std::to_string(nr) + " along k";
    define(launch, "MR", mr);
    define(launch, "NR", nr);
    define(launch, "MT", mt);
    launch.buffers({{"a", a->input}, {"w", b->input}});
    launch.args({{"M", M}, {"N", N}, {"K", K}, {"inner", inner}, {"a_row", a->row}, {"b_col", b->col}});
    launch.args({{"a_outer", a->outer}, {"a_inner", a->inner}, {"b_outer", b->outer}, {"b_inner", b->inner}});
    launch.groups = {ir::ceildiv(N, nr * mt), batch, 1};
    return true;
  }

  Tile tile = choose_tile(context, rows, columns);
  int chains = 1, b_layout = 1, a_layout = 2;
  if (M.is_const() && rows <= 8) {  // one tile of rows: several sums along k hide the latency of multiply-add
    tile = {static_cast<int>(rows), rows > 4 || vw == 8 ? 2 : 4};
    while (tile.vectors > 1 && columns % (tile.vectors * vw) != 0) tile.vectors /= 2;
    while (chains < 8 && tile.rows * tile.vectors * chains * 2 <= 8) chains *= 2;
  }
  const int width = tile.vectors * vw;
  if (a->col.is_const(1))
    a_layout = 0;
  else if (a->row.is_const(1))
    a_layout = 1;
  const bool one_tile = M.is_const() && rows <= tile.rows;
  const int64_t row_tiles = (rows + tile.rows - 1) / tile.rows, panels = (columns + width - 1) / width * batches;
  const bool loops = is_written_by_loops(context, b->input.buffer);
  const bool is_panel = b->col.is_const(1) && b->row.is_const(width) && N.is_const() && columns == width;  // values of a head
  const bool whole_tiles = b->col.is_const(1) && N.is_const() && columns % width == 0;
  const bool small = whole_tiles && chains == 1 && K.is_const() && K.constant() * columns <= kL2Floats;
  const bool pages_apart =
      typical(b->row, 0) % kPageFloats == 0;  // such rows share few sets of a cache: each item packs its own
  const bool read_in_place = small && !pages_apart;
  const bool packs = !is_panel && !small && (!b->col.is_const(1) || (row_tiles > kMostTiles && !loops));
  const int mt = one_tile ? 1 : choose_run(context, row_tiles, panels, packs || is_panel || read_in_place ? 8 : kMostTiles);
  if (is_panel) {
    b_layout = one_tile ? 3 : 0;
  } else if (!packs) {
    b_layout = read_in_place || (one_tile && whole_tiles) ? 3 : 1;
  } else if (!loops) {
    b_layout = 0;
    b = packed_panels(context, node.operands[1], *b, inner, width);
  } else {  // in one kernel with what writes B
    b_layout = 0;
    const IndexExpr column = IndexExpr::loop(1) * width + IndexExpr::loop(3);
    const bool shared = b->outer.is_const(0) && b->inner.is_const(0);
    const IndexExpr count = shared ? IndexExpr(1) : batch;
    const Operand packed = copied_operand(context, node.operands[1], {count, ir::ceildiv(N, width), K, width},
                                          {IndexExpr::loop(0), IndexExpr::loop(2), column}, {{column, N}});
    b = Matrices{packed.input, shared ? IndexExpr(0) : packed.strides[0] * inner,
                 shared || inner.is_const(1) ? IndexExpr(0) : packed.strides[0], 0, 0};
  }
  launch.kernel = KernelId::k_gemm_item;
  launch.variant = std::to_string(tile.rows) + "x" + std::to_string(width) + (b_layout == 0 ? " packed" : " in place");
  launch.store_width = vw;
  launch.store_steps = true;
  launch.plain_stores = true;
  define(launch, "MR", tile.rows);
  define(launch, "NV", tile.vectors);
  define(launch, "MT", mt);
  define(launch, "A_COL_MAJOR", a_layout);
  define(launch, "B_IN_PLACE", b_layout);
  define(launch, "WHOLE_VECTORS", N.is_const() && columns % vw == 0);
  if (chains > 1) define(launch, "K_CHAINS", chains);
  const bool short_rows = a_layout == 0 && K.is_const() && K.constant() <= kShortRow;
  const bool unforeseen = row_tiles > 1 && (short_rows || a_layout == 1);
  if (caps.prefetch && (unforeseen || b_layout == 1)) define(launch, "PREFETCHES", 1);
  if (caps.prefetch && unforeseen) define(launch, "PREFETCH_A", 1);
  launch.buffers({{"a", a->input}, {"b", b->input}});
  launch.args({{"M", M}, {"N", N}, {"K", K}, {"inner", inner}});
  pass_matrix(launch, "a", *a);
  pass_matrix(launch, "b", *b);
  launch.groups = {ir::ceildiv(M, tile.rows * mt), ir::ceildiv(N, width), batch};
  return true;
}

}  // namespace ocl::schedule
