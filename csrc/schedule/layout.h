// csrc/schedule/layout.h: pass: gives strides to every buffer. Feature maps of convolutions are channels-last on all
// devices, and so are buffers connected with them element by element. A 1x1 convolution is then a matrix product, and
// channels are the vector dimension of every fused chain. Other buffers take the order of their largest input. Strides
// that the caller expects do not change. An operand that no kernel can read gets a copy.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void choose_layout(Schedule& schedule, const Caps& caps);

/// Returns the strides of a dense buffer whose dimensions are in `order`, outermost first.
ir::Shape dense_strides(const ir::Shape& sizes, const std::vector<int>& order);
/// Returns the channels-last strides of a buffer with sizes N, C, H, W.
ir::Shape channels_last_strides(const ir::Shape& sizes);
/// Returns a node that copies `view` into a new buffer with these strides. Changes `view` so that it refers to that
/// buffer.
ir::Node copy_of_view(ir::Graph& graph, ir::View& view, const ir::Shape& strides, const ir::Origin& origin);

}  // namespace ocl::schedule
