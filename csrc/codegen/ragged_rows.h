// csrc/codegen/ragged_rows.h: rows that begin at any element, read as vectors from their first aligned element on.
#pragma once

#include <string>

#include "csrc/codegen/body_printer.h"

namespace ocl::codegen {

/// Texts about the row at the innermost level of a body.
struct RaggedRow {
  std::string head;  // The number of elements before the first aligned one.
  std::string fits;  // Whether the same elements are aligned in all tensors; empty: always.
};

/// `loop`: the loop along rows. The variables of all other loops that the tensors' offsets use must be known.
RaggedRow ragged_row(BodyPrinter& body, const schedule::Group& group, ir::Symbol loop);

}  // namespace ocl::codegen
