// csrc/distributed/peers.h: finds out which ranks of a group have stopped working. Ranks publish notes in the
// group's store.
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace ocl::distributed {

/// The ranks of a group as messages name them.
struct RankNames {
  std::string group;
  int rank = 0, size = 1;                  // The number of this process, and the number of ranks.
  std::vector<int64_t> global_ranks = {};  // The ranks of a subgroup in the default group; may be empty.

  std::string of(int peer) const;  // Returns "rank 1 (global 3)".
};

/// Writes a note that this rank failed with `message`, then waits up to three seconds for notes of the other ranks. Returns
/// lines that say which ranks wrote what, and which wrote nothing: such a rank has ended, hangs, or never called the
/// collective. Never throws.
std::string ask_peers(c10d::Store& store, const RankNames& names, const std::string& message) noexcept;

}  // namespace ocl::distributed
