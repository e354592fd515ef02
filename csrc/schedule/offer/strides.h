// csrc/schedule/offer/strides.h: strides of dense buffers.
#pragma once

#include <vector>

#include "csrc/schedule/offer/names.h"

namespace ocl::schedule {

/// Returns the strides of a dense buffer whose dimensions are in `order`, outermost first.
ir::Shape dense_strides(const ir::Shape& sizes, const std::vector<int>& order);

}  // namespace ocl::schedule
