// csrc/schedule/column_parts.h: computes a product in parts of its columns, one after the other.
#pragma once

#include "csrc/ir/graph.h"

namespace ocl::schedule {

/// Replaces a contraction by contractions of up to `columns` of its columns each. A Map after each stores its result into these
/// columns of the whole one; it becomes part of the product's kernel. Returns false, and changes nothing, if a Map reads the
/// result: it would be part of the kernel of the whole product.
bool cut_columns(ir::Graph& graph, ir::NodeId contraction, int64_t columns);

}  // namespace ocl::schedule
