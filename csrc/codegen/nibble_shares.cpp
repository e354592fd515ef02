// csrc/codegen/nibble_shares.cpp: see nibble_shares.h.
#include "csrc/codegen/nibble_shares.h"

namespace ocl::codegen {

namespace {

constexpr int kRoundWords = 16;            // Most words of weights of an item and round, of which two are on their way.
constexpr int kUnitItems = 1024;           // Work-items of a compute unit that load at a time.
constexpr int64_t kLocalBytes = 96 << 10;  // What every device with these instructions has, whatever it reports.

}  // namespace

std::optional<NibbleShares> nibble_shares(const NibbleGroup& nibbles, const Dialect& dialect) {
  NibbleShares shares;
  shares.steps = nibbles.bytes / (int64_t{16} * nibbles.words);
  const int64_t loaded = static_cast<int64_t>(nibbles.matrices.size()) * 2 * nibbles.words;
  const auto steps_of_warp = [&] { return (shares.steps + shares.warps - 1) / shares.warps; };
  const auto grows = [&] { return shares.warps * 2 * 32 <= dialect.max_items && shares.warps * 2 <= shares.steps; };
  while (grows() && (shares.warps < 8 || (shares.warps < 16 && steps_of_warp() * loaded > 2 * kRoundWords))) shares.warps *= 2;
  const int64_t all = (nibbles.rows + kNibbleTile - 1) / kNibbleTile;
  const int64_t resident = std::max(1, dialect.units * (kUnitItems / shares.items()));
  const auto tiles = static_cast<int>(std::clamp<int64_t>((all + resident - 1) / resident, 1, shares.items() / kNibbleTile));
  for (int64_t words = kRoundWords; words >= loaded; words /= 2)
    for (shares.tiles = tiles; shares.tiles > 0; --shares.tiles) {
      const bool single = shares.tiles == 1 && steps_of_warp() * loaded <= 2 * words;
      shares.at_once = static_cast<int>(std::min((single ? 2 : 1) * words / loaded, steps_of_warp()));
      shares.rounds = static_cast<int>((steps_of_warp() + shares.at_once - 1) / shares.at_once);
      const int64_t bytes = int64_t{4} * shares.stages() * shares.at_once * loaded * shares.items() +
                            16 * static_cast<int64_t>(nibbles.vectors.size()) * nibbles.row_vectors() +
                            int64_t{4} * shares.tiles * shares.warps * kNibbleTile * nibbles.sums() +
                            4 * nibbles.totals() * (shares.items() + shares.items() / kMergedTotals);
      if (bytes <= kLocalBytes) return shares;
    }
  return std::nullopt;
}

}  // namespace ocl::codegen
