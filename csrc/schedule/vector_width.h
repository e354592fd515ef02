// csrc/schedule/vector_width.h: chooses the vector width of a group of loops.
#pragma once

#include <optional>
#include <vector>

#include "csrc/schedule/body.h"
#include "csrc/schedule/pass.h"

namespace ocl::schedule {

/// A load or store of a group, with its stride for each loop (i*, then r*); nullopt where the offset is not affine.
struct AccessStrides {
  std::vector<std::optional<IndexExpr>> strides;
  Access access;
  double bytes = 0;       // Bytes that it moves, over all loops.
  int64_t element_bytes;  // Bytes of an element.
  bool store = false;
};

/// Chooses the group's vector width, and what follows from it: the loop that a transposition crosses, the width for rows that
/// begin at any element, the columns of a work-group. accesses: all loads and stores of the group. scalar: no vectors.
void choose_vector_width(const ir::Graph& graph, Group& group, const std::vector<AccessStrides>& accesses, const Caps& caps,
                         bool scalar);

}  // namespace ocl::schedule
