// csrc/schedule/templates/tensor_core_tiles.h: tiles of the kernels on tensor cores.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "csrc/schedule/templates/item_operands.h"

namespace ocl::schedule {

/// What tensor cores multiply for a node, and what their kernels ask of operands.
struct UnitMath {
  KernelType type;
  KernelLevel level;  // whose registers hold a product's sums: four warps' or one's
  const char* name;   // "split tf32", for variants
  int terms;          // products a pair of floats; 1 for operands of 16 bits
  int chunk;          // elements of 16 bytes: strides and contiguous channels are multiples of it
  double flops;       // of one compute unit of an H200 at full speed
  double product;     // of a matrix product in tiles of 128 x 128, operands in place
  bool wide = false;  // tiles of 256 columns may be used
};
/// How the row under choice multiplies the node's operands; nullopt if it does not take them on this device.
std::optional<UnitMath> unit_math(const TemplateContext& context);
/// Whether a further form of the row under choice may be used.
bool has_form(const TemplateContext& context, const UnitMath& math, KernelOperation form);

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
/// Kernel, tile, terms and local size of a launch of the row under choice.
void use_tensor_cores(const TemplateContext& context, TemplateLaunch& launch, const UnitMath& math, const UnitTile& tile,
                      int producers = 128, int store_width = 2);
/// The same for a kernel that stores vectors along rows of `columns` elements.
void use_unit_tile(const TemplateContext& context, TemplateLaunch& launch, const UnitMath& math, const UnitTile& tile,
                   const ir::IndexExpr& columns, int producers = 128);

}  // namespace ocl::schedule
