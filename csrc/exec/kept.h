// csrc/exec/kept.h: the memory of results that a plan computes from parameters alone, such as packed weights. They are kept
// between calls until a parameter is written or freed.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "csrc/runtime/device/device.h"
#include "csrc/runtime/memory/allocator.h"
#include "csrc/runtime/queues/queue.h"

namespace ocl::exec {

/// The memory of a plan's kept results, and the versions of the parameters that they were computed from. Any stream may
/// use it. A stream that did not compute the results waits for them once.
class Kept : public runtime::Dependent {
 public:
  /// Address and version of each parameter. A write changes the version.
  using Key = std::vector<std::pair<const void*, uint64_t>>;
  /// `stream` is the stream on which the results will be computed.
  Kept(runtime::Device& device, size_t bytes, Key key, int stream);
  ~Kept() override;
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  /// Frees the results. It is called when a parameter's storage is freed. Enqueued work may still read them, as with any
  /// freed block.
  void storage_freed() noexcept override;
  bool matches(const Key& key) const;
  void* address() const { return address_; }
  /// Call when the work that computes the results has been enqueued on `queue`, the queue of the stream.
  void computed(runtime::Queue& queue);
  /// Makes later work of `queue` see the results.
  void make_ready(runtime::Queue& queue);

 private:
  mutable std::mutex mutex_;
  runtime::Device& device_;
  size_t bytes_;
  Key key_;
  runtime::EventHandle computed_;
  std::vector<int> ready_;  // Streams that need not wait any more.
  void* address_ = nullptr;
};

/// Returns the total size in bytes of all kept results of this process.
int64_t kept_bytes();

}  // namespace ocl::exec
