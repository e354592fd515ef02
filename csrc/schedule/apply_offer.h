// csrc/schedule/apply_offer.h: carries out an offer: the only code that changes a graph for a hand-written kernel.
#pragma once

#include <map>
#include <vector>

#include "csrc/schedule/offer/offer.h"

namespace ocl::schedule {

/// Adds the offer's buffers and strides to the graph. Appends the nodes that the offer prepares, the node itself and, if it
/// is split, the sum of the slices to `nodes`, and their launches to `launches`, by position in `nodes`.
void apply_offer(ir::Graph& graph, Offer offer, std::vector<ir::Node>& nodes, std::map<ir::NodeId, TemplateLaunch>& launches);

}  // namespace ocl::schedule
