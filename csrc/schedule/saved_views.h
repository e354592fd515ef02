// csrc/schedule/saved_views.h: returns saved values as windows on the buffers of which they would be copies.
#pragma once

#include "csrc/schedule/pass.h"

namespace ocl::schedule {

/// An output whose strides are free (a value saved for the backward graph) and that is a copy becomes a window on the
/// source of the copy, if that is an intermediate buffer. Then the copy is not made. Examples are a reshaped
/// activation, and queries, keys and values, which are slices of one product. The outputs on one buffer must cover it, so
/// that no other memory stays alive, and must not overlap, because the backward graph may overwrite each of them. Every buffer
/// must have strides. For the layout pass.
void return_saved_windows(Schedule& schedule);

}  // namespace ocl::schedule
