// csrc/schedule/conv_statistics.h: pass: a convolution leaves the statistics of its channels, in slices, and the reduction
// behind it (the mean and variance of a batch norm in training) merges these instead of reading the convolution's output.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

void conv_statistics(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
