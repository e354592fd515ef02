// csrc/exec/kept.cpp: see kept.h.
#include "csrc/exec/kept.h"

#include <algorithm>
#include <atomic>

namespace ocl::exec {
namespace {

std::atomic<int64_t> g_kept_bytes{0};

}  // namespace

Kept::Kept(runtime::Device& device, size_t bytes, Key key, int stream)
    : device_(device),
      bytes_(bytes),
      key_(std::move(key)),
      ready_{stream},
      address_(device.allocator().allocate(bytes, stream)) {
  g_kept_bytes += static_cast<int64_t>(bytes_);
}

Kept::~Kept() { storage_freed(); }

void Kept::storage_freed() noexcept {
  void* address = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::swap(address, address_);
  }
  if (!address) return;
  g_kept_bytes -= static_cast<int64_t>(bytes_);
  device_.allocator().free(address);
}

bool Kept::matches(const Key& key) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return address_ && key_ == key;
}

void Kept::computed(runtime::Queue& queue) {
  const std::lock_guard<std::mutex> lock(mutex_);
  computed_ = queue.marker();
}

void Kept::make_ready(runtime::Queue& queue) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (std::find(ready_.begin(), ready_.end(), queue.stream()) != ready_.end()) return;
  queue.wait_for(computed_.get());
  ready_.push_back(queue.stream());
}

int64_t kept_bytes() { return g_kept_bytes.load(); }

}  // namespace ocl::exec
