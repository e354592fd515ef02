// csrc/torch/host_allocator.h: pinned host memory, which a device reads and writes while the host goes on.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

#include "csrc/runtime/queues/queue.h"

namespace ocl::aten {

at::HostAllocator* host_allocator();
bool is_pinned(const void* address) noexcept;
/// Prevents reuse of the pinned block at `address` until the work that `queue` has enqueued so far is done. Returns
/// false if the address is not pinned.
bool hold_until_done(const void* address, runtime::Queue& queue);
/// Returns the number of events that pinned blocks wait for, including events that are already done.
size_t pinned_events();

}  // namespace ocl::aten
