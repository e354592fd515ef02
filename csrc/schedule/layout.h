// csrc/schedule/layout.h: pass: gives strides to every buffer. Feature maps of convolutions are channels-last on all
// devices, and so are buffers connected with them element by element. A 1x1 convolution is then a matrix product, and
// channels are the vector dimension of every fused chain. Other buffers take the order of their largest input. Strides
// that the caller expects do not change. An operand that no kernel can read gets a copy.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void choose_layout(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
