// csrc/torch/host_allocator.h: pinned host memory: what a device copies from and to without waiting for the host.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

#include "csrc/runtime/queue.h"

namespace ocl::aten {

at::HostAllocator* host_allocator();
bool is_pinned(const void* address) noexcept;
/// Keeps the pinned block that holds `address` from being reused before what `queue` has enqueued so far is done.
/// False when the address is not pinned.
bool hold_until_done(const void* address, runtime::Queue& queue);
/// Events of copies that pinned blocks wait for, done ones included.
size_t pinned_events();

}  // namespace ocl::aten
