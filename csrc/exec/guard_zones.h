// csrc/exec/guard_zones.h: the option debug: fills new memory with NaN, and finds stores beside buffers.
#pragma once

#include <cstdint>
#include <memory>

#include "csrc/exec/observer.h"

namespace ocl::exec {

/// Size of a guard zone in bytes: it lies before and behind every buffer of the arena and every result. A multiple of
/// the arena's alignment.
constexpr int64_t kGuardBytes = 512;

/// An observer for a plan with guard_bytes. When a buffer of the arena begins to live, and for results before the first
/// step, all bits of its memory are set: NaN for floating point, -1 for integers. The zones around it get another
/// pattern, also NaN. After each step, the zones of all live buffers are read back. Throws kOutOfBounds, with the kernel,
/// its source lines, the buffer and the offset, if one has changed.
std::shared_ptr<Observer> guard_zones(Plan& plan);

}  // namespace ocl::exec
