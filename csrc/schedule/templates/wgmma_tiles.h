// csrc/schedule/templates/wgmma_tiles.h: tiles of the matrix-unit kernels (kernels/wgmma.cl).
#pragma once

#include "csrc/schedule/templates/item_operands.h"

namespace ocl::schedule {

/// A work-group's tile of the output; 64 rows a consumer.
struct UnitTile {
  int rows, columns;
  double rate;  // multiply-adds per second relative to the first when the device is full; measured on an H200
};

/// Whether the node's operands are fp32 and the device has the units.
bool takes_wgmma(const TemplateContext& context);
/// The tile that finishes rows x columns (times `others` of them) first: whole rounds over the compute units. Knob "tile".
UnitTile choose_unit_tile(TemplateContext& context, int64_t rows, int64_t columns, int64_t others);
/// Groups that loop over `tiles` tiles, `others` times at once: as many as fit on the device.
ir::IndexExpr persistent_groups(const Caps& caps, const ir::IndexExpr& tiles, const UnitTile& tile,
                                const ir::IndexExpr& others);
/// File, library, tile, terms and local size of a launch.
void use_unit_tile(const TemplateContext& context, TemplateLaunch& launch, const char* file, const UnitTile& tile);

}  // namespace ocl::schedule
