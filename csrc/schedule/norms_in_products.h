// csrc/schedule/norms_in_products.h: pass: lets a product of a few rows normalise the row that it reads.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

/// sum over k of x[k] * s * g[k] * w[n, k] is s times the sum of x[k] * g[k] * w[n, k]. If s is computed from a sum over x, as
/// in an RMS norm, a product reads x itself, adds up both, and multiplies its result by s. So the norm needs no launch. It is
/// not rounded to 16 bits, as it is never stored. For GPUs, where each work-group reads the whole row anyway.
void norms_in_products(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
