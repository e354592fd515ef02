// csrc/distributed/peers.h: finds out which ranks of a group have stopped working. Ranks tell each other by notes in the
// group's store.
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace ocl::distributed {

/// Writes a note that `rank` failed with `message`, then waits up to three seconds for notes of the other ranks. Returns lines
/// that say which ranks wrote what, and which wrote nothing: such a rank has ended, hangs, or never called the collective.
/// `global_ranks` names the ranks of a subgroup; it may be empty. Never throws.
std::string ask_peers(c10d::Store& store, int rank, int size, const std::vector<int64_t>& global_ranks,
                      const std::string& message) noexcept;

}  // namespace ocl::distributed
