// csrc/schedule/families/gemm/offer_group.cpp: offers kernels/gemm/group.cl, matrix products on GPUs.
#include "csrc/schedule/families/gemm/matrices.h"

namespace ocl::schedule {

void offer_gemm_group(Draft& draft) {
  static const std::vector<GroupTile> tiles = {
#define GROUP_TILE(...) GroupTile{__VA_ARGS__},
#include "csrc/schedule/families/gemm/tiles.def"
#undef GROUP_TILE
  };
  const ir::Node& node = draft.node();
  const int64_t rows = typical(node.sizes[1], 512), columns = typical(node.sizes[2], 512), batches = typical(node.sizes[0], 8);
  const int64_t depth = typical(node.reduce_sizes[0], 512);  // A split into slices of 256 gives more tiles.
  const GroupTile tile = choose_group_tile(draft, fitting_tiles(draft.caps, tiles, depth), rows, columns,
                                           batches * std::clamp<int64_t>(depth / 256, 1, 64));
  const int64_t splits =
      constants(node.sizes) ? choose_splits(draft, count_tiles(tile, rows, columns, batches), node.reduce_sizes[0]) : 1;
  if (splits > 1) split_depth(draft, splits);

  TemplateLaunch& launch = draft.launch();
  launch.kind = "gemm";
  launch.variant = tile.name() + in_slices(splits);
  define_types(draft, launch, 4);
  use_tile(draft, tile, typical(node.reduce_sizes[0], 512));
  launch.stores.width = 4;
  pass_matrices(draft);
  launch.groups = {ir::ceildiv(node.sizes[1], tile.rows) * ir::ceildiv(node.sizes[2], tile.columns), 1, node.sizes[0]};
}

}  // namespace ocl::schedule
