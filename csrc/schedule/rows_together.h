// csrc/schedule/rows_together.h: pass: computes rows of a product that are read together in one iteration of its loops.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

/// A Map may read several elements of a reduction's result: silu(gate) * up reads those of two halves, a rotary embedding those
/// of two halves of each head. The reduction becomes one for each of them, over the loops of the Map, so that fusion puts all
/// into one launch. If several Maps read the result, such as queries, keys and values, these loops run over all their elements,
/// and each Map stores its own. For GPUs: on a CPU, a launch costs little beside
/// reading the matrix.
void rows_together(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
