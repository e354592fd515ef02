// csrc/schedule/templates/group_tiles.h: shared by the choosers of group kernels: tiles of a work-group, and tests of
// alignment.
#pragma once

#include <string>
#include <vector>

#include "csrc/schedule/templates/item_operands.h"

namespace ocl::schedule {

/// The tile of the output that a work-group computes, and the block of it that a work-item computes
/// (kernels/gemm/group.cl). A step takes 16 elements of the inner dimension.
struct GroupTile {
  int rows, columns, item_rows, item_columns;
  // Speed on a full device relative to the best tile, measured on an H200.
  double rate;
  int items() const { return rows / item_rows * (columns / item_columns); }
  std::string name() const { return std::to_string(rows) + "x" + std::to_string(columns); }
};

/// Returns the tile of `among` with the lowest cost for `others` outputs of rows x columns. The cost is the area of
/// full waves of tiles, divided by the tile's rate. The choice is the knob "tile".
GroupTile choose_group_tile(TemplateContext& context, const std::vector<GroupTile>& among, int64_t rows, int64_t columns,
                            int64_t others);
/// Defines TILE_M, TILE_N, TILE_K, ITEM_M and ITEM_N. Defines SUM_STEPS for sums of `depth` products. Sets the local
/// size.
void use_tile(TemplateLaunch& launch, const GroupTile& tile, int64_t depth);

/// True if all expressions are known to be multiples of `of`.
bool multiples(const TemplateContext& context, int of, const std::vector<ir::IndexExpr>& sizes);
/// True if all expressions are known to be multiples of 4, so that the kernels may load float4.
bool are_multiples_of_4(const TemplateContext& context, const std::vector<ir::IndexExpr>& sizes);
/// Defines ALIGNED_BASES. It is 1 if the plan places every input (at a multiple of 16 bytes) and the offset of each
/// input is a multiple of `chunk` elements. The caller decides where a graph input begins, so kernels test its offset
/// at run time.
void define_alignment(const TemplateContext& context, TemplateLaunch& launch, int chunk = 4);
/// True if the image's channel stride is known to be 1, which group kernels need.
bool channels_contiguous(const Operand& operand);
/// Returns the view with contiguous channels, in place or as a copy that is made before the node.
Operand channels_last_operand(TemplateContext& context, const ir::View& view);

}  // namespace ocl::schedule
