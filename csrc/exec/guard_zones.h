// csrc/exec/guard_zones.h: implements the option `debug`, which fills new memory with NaN and finds stores beside buffers.
#pragma once

#include <cstdint>
#include <memory>

#include "csrc/exec/observer.h"

namespace ocl::exec {

/// Size in bytes of a guard zone, which lies before and behind every buffer of the arena and every result. It is a multiple of
/// the arena's alignment.
constexpr int64_t kGuardBytes = 512;

/// Makes an observer for a plan with guard_bytes. It sets all bits of a buffer's memory (NaN for floating point, -1 for
/// integers) when the buffer's lifetime begins, and of results before the first step. The zones around the memory get
/// another pattern, which is NaN too. After each step, it reads the zones of all live buffers back. If one has changed,
/// it throws kOutOfBounds with the kernel, its source lines, the buffer and the offset.
std::shared_ptr<Observer> guard_zones(const RunState& state);

}  // namespace ocl::exec
