// csrc/codegen/nest.h: the loops over i* around the phases of a group, and the grid of work-groups.
#pragma once

#include <optional>

#include "csrc/codegen/body.h"

namespace ocl::codegen {

/// What is known of a kLoops group while its kernel is printed.
struct Nest {
  Nest(const schedule::Schedule& schedule, const schedule::Group& group, const Caps& caps);

  const schedule::Group& group;
  ir::Ranges ranges;
  Kernel kernel;
  BodyPrinter body;
  /// Set if one kernel computes several nests (a batch): the number of elements of all of them together. Each nest then
  /// takes the index of its work-group from a variable `group`. A nest with a single loop gets the loop's size as an
  /// argument, so nests that differ only in size have equal source text.
  std::optional<ir::IndexExpr> batch_elements;
};

/// Work-groups in each dimension.
using Grid = std::array<ir::IndexExpr, 3>;

/// pointwise.cpp: each lane computes outer elements on its own (kPointwise, kSequential). Vectors run along the
/// innermost loop.
Grid write_elements_cpu(Nest& nest);
Grid write_elements_gpu(Nest& nest);
/// reduction.cpp: vector lanes (CPU) or the items of a work-group (GPU) share the reduction of one outer element.
Grid write_rows_cpu(Nest& nest);
Grid write_rows_gpu(Nest& nest, std::array<size_t, 3>* local);

/// Returns the number of outer elements for one CPU work-item. It is large enough to be worth a work-item, but gives a
/// large launch several work-items per core. elements: the number of all outer elements; cost: simple operations for
/// each of them.
ir::IndexExpr elements_per_item(const Dialect& dialect, const ir::IndexExpr& elements, const ir::IndexExpr& cost);
/// Returns the extents of the group's loops and the ranges of its sizes.
ir::Ranges group_ranges(const schedule::Schedule& schedule, const schedule::Group& group);

}  // namespace ocl::codegen
