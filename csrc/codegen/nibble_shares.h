// csrc/codegen/nibble_shares.h: how the warps of a work-group share matrices of int4 that tensor cores multiply.
#pragma once

#include <algorithm>

#include "csrc/codegen/nibble_sums.h"

namespace ocl::codegen {

inline constexpr int kNibbleTile = 16;    // Rows of a tile.
inline constexpr int kMergedTotals = 16;  // Items whose parts of a reduction over the rows are added at once.

/// How the warps of a work-group share the matrices. A tile is 16 rows; its steps along a row take turns among the warps.
struct NibbleShares {
  int warps = 1, tiles = 1;
  int64_t steps = 1;  // Steps of a row.
  int at_once = 1;    // Steps of a warp that are loaded together: a round.
  int rounds = 1;     // Rounds of a warp for a tile.
  int items() const { return warps * 32; }
  int all_rounds() const { return tiles * rounds; }
  int stages() const { return std::min(all_rounds(), 2); }  // Rounds whose weights are on their way to local memory.
  bool uneven() const { return int64_t{warps} * at_once * rounds != steps; }
};

/// Returns how a device with these properties shares the matrices; nullopt if the rows do not fit into its local memory.
std::optional<NibbleShares> nibble_shares(const NibbleGroup& nibbles, const Dialect& dialect);

}  // namespace ocl::codegen
