// csrc/codegen/nibble_sums.h: recognises sums that multiply a matrix of int4 with a row, as the pass packed_pairs writes them.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "csrc/codegen/nest.h"

namespace ocl::codegen {

/// The loop along a row of a matrix, whose elements are bytes.
inline const ir::Symbol kAlong{SymbolKind::kReduce, 0};

/// sum over bytes r of scales * (x0 * low + x1 * high + number * zero * (x0 + x1)), where low and high are the halves of byte
/// r. The fields are numbers of ops in the body of `node`.
struct NibbleSum {
  ir::NodeId node = ir::kNone;
  int bytes = ir::kNone, x0 = ir::kNone, x1 = ir::kNone;
  std::vector<int> scales;
  double number = 0;
  int zero = ir::kNone;  // kNone: 1.
};

/// A group whose reductions are sums of this kind, perhaps with others that are the same for all rows of the matrices.
struct NibbleGroup {
  struct Reduction {
    ir::NodeId node = ir::kNone;
    int matrix = ir::kNone, vector = ir::kNone;  // Positions in the lists below; kNone: it is the same for all rows.
  };
  std::vector<Reduction> reductions;         // In the order of the phase.
  std::vector<NibbleSum> matrices, vectors;  // A sum with each matrix, and with each row that these are multiplied by.
  int64_t rows = 0, bytes = 0;               // Rows of a matrix, and bytes of a row.
  // A step of a warp is 16 rows times 16 * words bytes. All bytes of a step have one scale and one zero.
  int words = 0;

  int64_t sums() const { return static_cast<int64_t>(matrices.size() * vectors.size()); }
  int64_t totals() const { return std::ranges::count(reductions, ir::kNone, &Reduction::matrix); }
  /// Vectors of 16 bytes of a row of bf16 in local memory. Some lie between two rows, so that these are in different banks.
  int64_t row_vectors() const { return bytes / 4 + (vectors.size() > 1 ? 4 : 0); }
};

/// Returns what tensor cores can compute of the group. nullopt if they cannot: the group has another form, or a row would lose
/// precision as bf16.
std::optional<NibbleGroup> nibble_group(Nest& nest);

}  // namespace ocl::codegen
