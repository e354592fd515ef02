// csrc/schedule/byte_products.h: pass: products of int8 are computed in bf16 where no instruction multiplies int8.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

/// bf16 holds every int8, and fp32 every sum of 1024 of their products. So a product of int8 becomes products of bf16 of slices
/// of its depth, whose results are added as integers. A product with up to eight rows, or of a depth that is not known, stays
/// as it is: loops compute it.
void byte_products(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
