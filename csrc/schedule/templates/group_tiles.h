// csrc/schedule/templates/group_tiles.h: what the choosers of the GPU family share: tiles of a work-group, promises about
// alignment.
#pragma once

#include <string>
#include <vector>

#include "csrc/schedule/templates/item_operands.h"

namespace ocl::schedule {

/// A work-group's tile of the output and a work-item's part of it (kernels/gemm/group.cl); steps of 16 along the depth.
struct GroupTile {
  int rows, columns, item_rows, item_columns;
  double rate;  // multiply-adds per second relative to the best tile when the device is full; measured on an H200
  int items() const { return rows / item_rows * (columns / item_columns); }
  std::string name() const { return std::to_string(rows) + "x" + std::to_string(columns); }
};

/// The tile of `among` that finishes rows x columns (times `others` of them) first: whole rounds over the compute units, by the
/// tile's rate. Knob "tile".
GroupTile choose_group_tile(TemplateContext& context, const std::vector<GroupTile>& among, int64_t rows, int64_t columns,
                            int64_t others);
/// Defines TILE_M, TILE_N, TILE_K, ITEM_M, ITEM_N, and SUM_STEPS for sums of `depth` products; sets the local size.
void use_tile(TemplateLaunch& launch, const GroupTile& tile, int64_t depth);

/// Whether all are known to be multiples of `of`.
bool multiples(const TemplateContext& context, int of, const std::vector<ir::IndexExpr>& sizes);
/// Multiples of 4: the kernels then load float4.
bool quads(const TemplateContext& context, const std::vector<ir::IndexExpr>& sizes);
/// Defines ALIGNED_BASES: whether every input is memory that the plan places (at multiples of 16 bytes), read from a multiple
/// of `chunk` elements on. Where a graph input begins is the caller's choice; the kernels then look at run time.
void define_alignment(const TemplateContext& context, TemplateLaunch& launch, int chunk = 4);
/// The operand's strides as the GPU kernels take images: channel stride 1 known.
bool channels_contiguous(const Operand& operand);
/// The view as memory with contiguous channels: in place, or a copy in front of the node.
Operand channels_last_operand(TemplateContext& context, const ir::View& view);

}  // namespace ocl::schedule
