// csrc/schedule/templates/wgmma_tiles.h: tiles of the matrix-unit kernels (kernels/wgmma.cl, kernels/mma.cl).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "csrc/schedule/templates/item_operands.h"

namespace ocl::schedule {

/// Whose registers hold a product's sums: four warps' (kernels/wgmma.cl) or one's (kernels/mma.cl).
enum class Units { kWarpgroup, kWarp };

/// What the units multiply for a node: which of their kernels, and what these ask of operands.
struct UnitMath {
  const char* name;  // "split tf32", for variants
  int terms;         // products a pair of floats; 1 for operands of 16 bits
  int chunk;         // elements of 16 bytes: strides and contiguous channels are multiples of it
  double flops;      // of one compute unit of an H200 at full speed
  double product;    // of a matrix product in tiles of 128 x 128, operands in place
  bool wide;         // tiles of 256 columns may be used
  bool packed;       // packed operands may be
  Units units = Units::kWarpgroup;
  bool statistics = false;  // a convolution may leave those of its channels (kernels/conv_statistics.cl)
};
/// nullopt if the units do not take the node's operands on this device.
std::optional<UnitMath> unit_math(const TemplateContext& context, Units units = Units::kWarpgroup);
/// The kernel of these units: "gemm" -> "gemm_wgmma".
std::string unit_file(const char* what, const UnitMath& math);
/// The same for an attention's kernels.
std::optional<UnitMath> attention_math(const TemplateContext& context, Units units);

/// A work-group's tile of the output; 64 rows a consumer, or a part of it a warp.
struct UnitTile {
  int rows, columns;
  double rate;  // multiply-adds per second relative to 128 x 128 in place when the device is full
  int warp_rows = 0, warp_columns = 0;
  std::string name() const;  // "128x128", "128x128/64x32"
};

/// The tiles of operands in place, or packed.
std::vector<UnitTile> unit_tiles(const UnitMath& math, bool packed);
/// Work-items that stage the operands of a weight's gradient: 32 bits are split and transposed on their way.
int weight_producers(int chunk, const UnitTile& tile);

/// What `others` times rows x columns take in whole rounds over the compute units: elements of the output to a unit, at the
/// rate of a tile of 128 x 128 in place.
double tile_cost(const Caps& caps, const UnitTile& tile, int64_t rows, int64_t columns, int64_t others);
/// A batch of matrix products as the model of cost sees it.
struct UnitProblem {
  int64_t rows, columns, depth, batches;
  bool fixed;  // all sizes are known: the depth may be split
};
/// How it runs: tile, parts of the depth, estimated seconds.
struct UnitWay {
  UnitTile tile;
  int64_t splits;
  double seconds;
};
/// Multiply-adds below which operands are never packed.
inline constexpr int64_t kLeastPacked = int64_t{1} << 27;
UnitProblem unit_problem(const ir::Node& node);
/// The best way with each tile, the quickest first.
std::vector<UnitWay> unit_ways(const Caps& caps, const UnitMath& math, const UnitProblem& problem, bool packed);
/// One of these, by the knobs "tile" and "splits".
UnitWay choose_unit_way(TemplateContext& context, const UnitMath& math, const UnitProblem& problem, bool packed);

/// The tile that finishes them first. Knob "tile".
UnitTile choose_unit_tile(TemplateContext& context, const std::vector<UnitTile>& tiles, int64_t rows, int64_t columns,
                          int64_t others);
/// Groups of this size that run at once; of these, those that loop over `tiles` tiles, `others` times at once: as many as fit
/// on the device; those of warps take a tile each.
int64_t resident_groups(const Caps& caps, const UnitTile& tile);
ir::IndexExpr persistent_groups(const Caps& caps, const ir::IndexExpr& tiles, const UnitTile& tile,
                                const ir::IndexExpr& others);
/// File, library, tile, terms and local size of a launch; use_warps: the same where the units are a warp's; use_unit_tile: of
/// one that stores rows of `columns` elements by kernels/wgmma_store.cl, and the width of these stores.
void use_unit_kernel(const TemplateContext& context, TemplateLaunch& launch, const std::string& file, const UnitMath& math,
                     int rows, int columns, int producers = 128, int store_width = 2);
void use_warps(TemplateLaunch& launch, const UnitMath& math, const UnitTile& tile);
void use_unit_tile(const TemplateContext& context, TemplateLaunch& launch, const std::string& file, const UnitMath& math,
                   const UnitTile& tile, const ir::IndexExpr& columns, int producers = 128);

}  // namespace ocl::schedule
