// csrc/schedule/families/tensor_cores.h: how tensor core kernels multiply, their tiles, and the cost model.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "csrc/schedule/families/tiles.h"

namespace ocl::schedule {

/// How tensor cores multiply the operands of a node, how fast, and what the kernels require of the operands.
struct TensorCoreMath {
  KernelType type;
  KernelLevel level;  // Warpgroup (wgmma), warp (mma) or subgroup_matrix.
  const char* name;   // Part of a variant's name, such as "split tf32".
  int terms = 1;      // Products that make up one product of floats: 3 for split TF32 or fp16, otherwise 1.
  int chunk = 0;      // Elements in 16 bytes. Strides and contiguous channels must be multiples of it.
  double flops;       // Highest number of multiply-adds per second of one compute unit of an H200.
  // Multiply-adds per second of one compute unit that a matrix product reaches in tiles of 128 x 128 with operands in
  // place.
  double product;
  // Results per second that the epilogue of a compute unit of an H100 stores, while nothing is multiplied. Infinite: not
  // measured, taken as part of `product`.
  double stored = std::numeric_limits<double>::infinity();
  std::set<KernelForm> forms = {};                        // Of the kernel; these may be used.
  MatrixInstructions matrix = MatrixInstructions::kNone;  // At the level subgroup_matrix, or kMma8.
  bool has(KernelForm form) const { return forms.contains(form); }
  /// Work-items of a warp or subgroup.
  int lanes() const { return matrix == MatrixInstructions::kNone ? 32 : matrix_row(matrix).lanes; }
};
/// The bandwidth of a copy and the time of a launch, which the cost model compares with these rates. All are measured on an
/// H200; their ratios hold approximately on other devices too.
inline constexpr double kMemoryBytesPerSecond = 3.5e12, kLaunchSeconds = 4e-6;
/// Returns how the kernel that is asked would multiply the node's operands; nullopt if it cannot on this device.
std::optional<TensorCoreMath> tensor_core_math(const Draft& draft);
/// The condition that tensor_core_math() returns a value.
extern const Fit kMultiplied;

/// The tile of the output that a work-group computes: a row of tiles.def. A consumer warpgroup has 64 of its rows; a warp or a
/// subgroup with matrix instructions has warp_rows x warp_columns. A chunk, a number of terms or of lanes of 0 stands for any.
struct TensorCoreTile {
  KernelLevel level;
  bool packed = false;  // Of warpgroups: the operands are packed.
  int chunk = 0, terms = 0, lanes = 0;
  int rows, columns;
  int warp_rows = 0, warp_columns = 0;
  bool images = false;  // For convolutions only.
  bool turns = false;   // Of warpgroups: two consumers take turns, each with all rows of a tile (KernelForm::k_turns).
  int resident = 1;     // Work-groups that share a compute unit; from 3 on their operands come in boxes.
  // Buffers in local memory, each for both operands of a step, and how many fit beside statistics of columns or the rows that
  // consumers exchange, if fewer. 0: the kernel has none.
  int stages = 0, cramped = 0;
  // Registers of each work-item, if producers give some to consumers: multiples of 8.
  int producer_registers = 0, consumer_registers = 0;
  double rate;         // Speed on a full device, relative to tiles of 128 x 128 with operands in place.
  const char* source;  // Where the rate comes from: the GPU that it was measured on, or "estimate".
  constexpr bool shares_unit() const { return resident > 2; }
  constexpr int at_once() const { return shares_unit() ? resident : 1; }
  constexpr bool in_boxes() const { return turns || shares_unit(); }  // In no other way.
  constexpr int consumers() const { return turns ? 2 : rows / 64; }
  std::string name() const;  // "128x128", "128x128/64x32", "128x128*3", "128x192-turns".
};

/// True if the tile has more than 128 rows or columns.
inline bool is_wide(const TensorCoreTile& tile) { return std::max(tile.rows, tile.columns) > 128; }
/// The deepest products for which several work-groups with tensor maps share a compute unit. Small tiles load more for a
/// product, which bounds the speed of deep ones.
inline constexpr int64_t kDeepestShared = 256;
/// Returns the tiles of kernels with packed operands, or with operands in place.
std::vector<TensorCoreTile> tensor_core_tiles(const TensorCoreMath& math, bool packed);
/// Returns the tiles of convolutions: their own, and those whose rows and columns are powers of two, since images and channels
/// are mostly such. Their addresses take registers too, so with DPAS a work-item has at most 32 sums, 16 of floats, whose parts
/// take registers: Intel's compiler keeps all sums in memory otherwise.
std::vector<TensorCoreTile> convolution_tiles(const TensorCoreMath& math, int64_t depth = kDeepestShared);
/// Lets tensor maps describe the operands where that is possible, and returns whether it is. Compute units have places for the
/// maps of one work-group each, except for tiles of which several work-groups share a compute unit: then a launch has places
/// for its work-groups. Knob "copies".
bool use_boxes(Draft& draft, const TensorCoreMath& math, const TensorCoreTile& tile);

/// The sizes of a batch of matrix products, for the cost model.
struct ProductSizes {
  int64_t rows, columns, depth, batches;
  bool fixed;                  // All sizes are known now, so the inner dimension may be split.
  bool slow_epilogue = false;  // See has_slow_epilogue().
};
/// One way to compute a product: the tile, the number of slices, and the estimated time.
struct TilePlan {
  TensorCoreTile tile;
  int64_t splits;
  double seconds;
  std::string name() const { return tile.name(); }
};
/// Operands of products with fewer multiply-adds than this are never packed.
inline constexpr int64_t kMinPackedProducts = int64_t{1} << 27;
ProductSizes product_sizes(const ir::Node& node);
/// True if the epilogue of the draft's node has a slow op, such as the erf of a gelu.
bool has_slow_epilogue(const Draft& draft);
/// Returns the best plan for each tile, fastest first.
std::vector<TilePlan> tile_plans(const Caps& caps, const TensorCoreMath& math, const ProductSizes& problem, bool packed);
/// Chooses one of tile_plans() by the knobs "tile" and "splits".
TilePlan choose_tile_plan(Draft& draft, const TensorCoreMath& math, const ProductSizes& problem, bool packed);

/// Returns the tile with the lowest tile_cost. The choice is the knob "tile".
TensorCoreTile choose_tensor_core_tile(Draft& draft, const std::vector<TensorCoreTile>& tiles, int64_t rows, int64_t columns,
                                       int64_t others);
/// resident_groups returns the number of work-groups of this tile that run at the same time. persistent_groups returns
/// the number of work-groups of a launch over `tiles` tiles, if `others` such launches share the device. It is at most
/// the number of resident work-groups; a warp kernel has one work-group per tile.
int64_t resident_groups(const Caps& caps, const TensorCoreTile& tile);
ir::IndexExpr persistent_groups(const Caps& caps, const ir::IndexExpr& tiles, const TensorCoreTile& tile,
                                const ir::IndexExpr& others);
/// Sets tile, stages, terms and local size of the launch.
void use_tensor_cores(Draft& draft, const TensorCoreMath& math, const TensorCoreTile& tile, int producers = 128,
                      int store_width = 2);
/// Defines the registers of the tile's producers and consumers.
void share_registers(TemplateLaunch& launch, const TensorCoreTile& tile);
/// Does what use_tensor_cores does, for a kernel that stores vectors along rows of `columns` elements. Chooses the
/// width of these vectors.
void use_tensor_core_tile(Draft& draft, const TensorCoreMath& math, const TensorCoreTile& tile, const ir::IndexExpr& columns,
                          int producers = 128);

}  // namespace ocl::schedule
