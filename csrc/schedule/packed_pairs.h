// csrc/schedule/packed_pairs.h: pass: reads two int4 of a byte as the byte and its lower half.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

/// A sum over bytes v of two int4, low = v & 15 and high = v >> 4, adds x0 * (low - zero) * scale + x1 * (high - zero) * scale.
/// Because high = (v - low) / 16, this is
///
///     scale * ((x0 - x1 / 16) * low + x1 / 16 * v - zero * (x0 + x1))
///
/// The three factors in x0 and x1 do not depend on the row of the matrix. For a CPU, a Map stores them once; a GPU computes
/// them once for the rows of a work-item. What is left for each byte is a mask, two conversions to floats, two multiply-adds
/// and the scale, which is 8 vector instructions in place of 13.
///
/// An infinite x gives NaN, because infinities of both signs meet.
void packed_pairs(Schedule& schedule, const Caps& caps);

}  // namespace ocl::schedule
