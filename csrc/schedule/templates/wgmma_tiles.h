// csrc/schedule/templates/wgmma_tiles.h: tiles of the matrix-unit kernels (kernels/wgmma.cl).
#pragma once

#include <optional>

#include "csrc/schedule/templates/item_operands.h"

namespace ocl::schedule {

/// What the units multiply for a node: which of their kernels, and what these ask of operands.
struct UnitMath {
  const char* name;  // "split tf32", for variants
  int terms;         // products a pair of floats; 1 for operands of 16 bits
  int chunk;         // elements of 16 bytes: strides and contiguous channels are multiples of it
  double flops;      // of one compute unit of an H200 at full speed
  bool wide;         // tiles of 256 columns may be used
};
/// nullopt if the units do not take the node's operands on this device.
std::optional<UnitMath> unit_math(const TemplateContext& context);
/// The same for an attention's kernels.
std::optional<UnitMath> attention_math(const TemplateContext& context);

/// A work-group's tile of the output; 64 rows a consumer.
struct UnitTile {
  int rows, columns;
  double rate;  // multiply-adds per second relative to 128 x 128 when the device is full
};

/// The tile that finishes rows x columns (times `others` of them) first: whole rounds over the compute units. Knob "tile".
UnitTile choose_unit_tile(TemplateContext& context, const UnitMath& math, int64_t rows, int64_t columns, int64_t others);
/// Groups that loop over `tiles` tiles, `others` times at once: as many as fit on the device.
ir::IndexExpr persistent_groups(const Caps& caps, const ir::IndexExpr& tiles, const UnitTile& tile,
                                const ir::IndexExpr& others);
/// File, library, tile, terms and local size of a launch; use_unit_tile: of one that stores rows of `columns` elements by
/// kernels/wgmma_store.cl, and the width of these stores.
void use_unit_kernel(const TemplateContext& context, TemplateLaunch& launch, const char* file, const UnitMath& math, int rows,
                     int columns);
void use_unit_tile(const TemplateContext& context, TemplateLaunch& launch, const char* file, const UnitMath& math,
                   const UnitTile& tile, const ir::IndexExpr& columns);

}  // namespace ocl::schedule
