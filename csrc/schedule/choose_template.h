// csrc/schedule/choose_template.h: pass: gives each contraction, convolution and attention a hand-written kernel. It
// asks the rows of template_rows() in order, but first the row that was measured to be fastest. If every row refuses,
// the node becomes a Reduce node over masked loads. That is slow, but right for every shape and dtype. Attention always
// finds a row.
#pragma once

#include "csrc/schedule/offer/offer.h"
#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void choose_template(Schedule& schedule, const PassContext& context);

/// Returns a Reduce node that computes the contraction or convolution `node`. It defines what the templates compute.
ir::Node lower_contraction(const ir::Graph& graph, const ir::Node& node);

}  // namespace ocl::schedule
