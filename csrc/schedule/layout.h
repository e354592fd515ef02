// csrc/schedule/layout.h: pass: gives strides to every buffer.
// Feature maps of convolutions, and what is connected with them element by element, are channels-last on all devices: 1x1
// convolution is then a GEMM on them, and channels are the vector dimension of every fused chain. Everything else keeps the
// order of its largest input. Strides that the caller was promised stay; operands that no kernel could read get a copy.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void choose_layout(Schedule& schedule, const Caps& caps);

/// Strides of a dense buffer with the dimensions in `order`, outermost first.
ir::Shape dense_strides(const ir::Shape& sizes, const std::vector<int>& order);
/// NHWC strides of a buffer with sizes N, C, H, W.
ir::Shape channels_last_strides(const ir::Shape& sizes);
/// A node that copies `view` into a new buffer with these strides; `view` becomes that buffer.
ir::Node copy_of_view(ir::Graph& graph, ir::View& view, const ir::Shape& strides, const ir::Origin& origin);

}  // namespace ocl::schedule
