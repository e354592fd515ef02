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
  /// Of a member of a batch: elements of all members. The nest then reads its work-group from a variable `group`, and the size
  /// of a single loop is an argument, so that members that differ in size alone have equal text.
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

/// Elements that an item should at least get, and the number of its outer elements so that a large launch has some items per
/// core: `elements` outer elements in all, each worth `cost` simple element operations.
ir::IndexExpr elements_per_item(const Dialect& dialect, const ir::IndexExpr& elements, const ir::IndexExpr& cost);
/// Extents of the group's loops and sizes.
ir::Ranges group_ranges(const schedule::Schedule& schedule, const schedule::Group& group);

}  // namespace ocl::codegen
