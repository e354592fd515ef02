// csrc/runtime/device/peer_link.h: copies from one device to another that do not go through memory of the host. CUDA makes
// them:
//
//   source queue | earlier work |  waits  | later work
//   CUDA                        |  copy   |
//   target queue | earlier work |  waits  | later work
//
// OpenCL has no copies between contexts. So a thread of the host starts the copy when the earlier work of both queues is
// done, and completes the events for which both queues wait.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "csrc/runtime/cuda/cuda_driver.h"

namespace ocl::runtime {

class Device;
class Queue;

class PeerLink {
 public:
  /// Returns the link from the memory of one device to that of another device. nullptr if there is none: both devices must be
  /// GPUs that CUDA can use.
  static PeerLink* between(Device& from, Device& to);
  /// True if the GPUs reach each other's memory. Otherwise CUDA's driver takes the bytes through the host.
  bool is_direct() const { return direct_; }
  /// Makes new memory of both devices memory that CUDA can use, and lets the source write to that of the target.
  void open();
  /// Copies `bytes` bytes between addresses of CUDA, when `source_ready` and `target_ready` are complete, events of the queues
  /// or null, and before their later work. Waits up to a millisecond if nothing else is to be done first, and otherwise for
  /// some microseconds. If the copy fails, both queues raise the error later. Copies of a link run in the order of the calls.
  void copy(Queue& source, EventHandle source_ready, uint64_t from, Queue& target, EventHandle target_ready, uint64_t to,
            size_t bytes);

 private:
  struct Copy;
  PeerLink(Device& from, Device& to);
  Device &source_, &target_;
  const CudaDevice &from_, &to_;
  std::atomic<bool> direct_{false};
  std::unique_ptr<CudaStream> stream_;
  std::once_flag opened_;
};

}  // namespace ocl::runtime
