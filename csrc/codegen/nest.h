// csrc/codegen/nest.h: the loops over i* around the phases of a group, and the grid of work-groups.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "csrc/codegen/body_printer.h"

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

/// A work-item should have at least this many elements of a cheap op (about 0.5 us).
constexpr int64_t kLeastWork = 4096;
/// Returns the number of outer elements for one CPU work-item. It is large enough to be worth a work-item, but gives a
/// large launch several work-items per core. elements: the number of all outer elements; cost: simple operations for
/// each of them.
ir::IndexExpr elements_per_item(const Dialect& dialect, const ir::IndexExpr& elements, const ir::IndexExpr& cost);

}  // namespace ocl::codegen
