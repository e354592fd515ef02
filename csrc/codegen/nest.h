// csrc/codegen/nest.h: the loops over i* around the phases of a group, and the grid that covers them.
#pragma once

#include <optional>

#include "csrc/codegen/body.h"

namespace ocl::codegen {

/// A kLoops group being printed.
struct Nest {
  Nest(const schedule::Schedule& schedule, const schedule::Group& group, const Caps& caps);

  const schedule::Group& group;
  ir::Ranges ranges;
  Kernel kernel;
  BodyPrinter body;
  /// For a member of a batch: the elements of all members together. The nest then reads its work-group from a variable `group`.
  /// The size of a single loop is an argument, so that members that differ only in size have equal text.
  std::optional<ir::IndexExpr> batch_elements;
};

/// Work-groups per dimension of the finished kernel.
using Grid = std::array<ir::IndexExpr, 3>;

/// pointwise.cpp: outer elements one by one, or in vectors along the innermost loop (kPointwise, kSequential).
Grid write_elements_cpu(Nest& nest);
Grid write_elements_gpu(Nest& nest);
/// reduction.cpp: one outer element at a time, its reduction spread over lanes (CPU) or the items of a work-group (GPU).
Grid write_rows_cpu(Nest& nest);
Grid write_rows_gpu(Nest& nest, std::array<size_t, 3>* local);

/// How many of `elements` outer elements a CPU work-item should get: enough to be worth it, and few enough that a large launch
/// has several work-items per core. Each outer element costs `cost` simple operations.
ir::IndexExpr elements_per_item(const Dialect& dialect, const ir::IndexExpr& elements, const ir::IndexExpr& cost);
/// Extents of the group's loops and sizes.
ir::Ranges group_ranges(const schedule::Schedule& schedule, const schedule::Group& group);

}  // namespace ocl::codegen
