// csrc/schedule/choose_template.h: pass: a hand-written kernel for each contraction and convolution, by asking template_rows()
// in order. What no row takes becomes a Reduce node over masked loads: slow, and right for every shape and dtype.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void choose_template(Schedule& schedule, const Caps& caps);

/// The contraction or convolution `node` as a Reduce node: the definition of what the templates compute.
ir::Node lower_contraction(const ir::Graph& graph, const ir::Node& node);

}  // namespace ocl::schedule
