// csrc/schedule/conv_statistics.h: pass: lets a convolution also store statistics of its channels, in slices. The mean
// and variance of a batch norm in training then merge the slices instead of reading the convolution's output.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void conv_statistics(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
