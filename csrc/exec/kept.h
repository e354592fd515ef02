// csrc/exec/kept.h: what a plan computes of parameters alone (packed weights) is kept between calls, until one of them is
// written or freed.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "csrc/runtime/allocator.h"
#include "csrc/runtime/queue.h"

namespace ocl::exec {

struct Plan;

/// The memory of a plan's kept intervals, with the contents that they were computed from. Any stream may use it: one that did
/// not compute it waits for those that did, once.
class Kept : public runtime::Dependent {
 public:
  /// Where a parameter lies and which contents it has; a write gives another version.
  using Key = std::vector<std::pair<const void*, uint64_t>>;
  /// To be computed on `stream`.
  Kept(runtime::Device& device, size_t bytes, Key key, int stream);
  ~Kept() override;
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  /// A parameter's storage is gone: gives the memory back. What is enqueued may still read it, as of any freed block.
  void storage_freed() noexcept override;
  bool matches(const Key& key) const;
  void* address() const { return address_; }
  /// The work that computes the contents is enqueued on `queue`, that of the stream.
  void computed(runtime::Queue& queue);
  /// Later work of `queue` sees the contents.
  void make_ready(runtime::Queue& queue);

 private:
  mutable std::mutex mutex_;
  runtime::Device& device_;
  size_t bytes_;
  Key key_;
  runtime::EventHandle computed_;
  std::vector<int> ready_;  // streams that need not wait
  void* address_ = nullptr;
};

/// Bytes of kept copies in this process.
int64_t kept_bytes();

/// Marks the steps of a new plan that read parameters alone, which no step writes, and takes their results out of the arena.
void mark_kept(Plan& plan);

}  // namespace ocl::exec
