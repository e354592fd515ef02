// csrc/distributed/nccl_communicator.h: the ranks of a group as NCCL connects them. One thread at a time uses it, with a
// CudaContextGuard of its device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "csrc/distributed/nccl_library.h"
#include "csrc/distributed/reduction.h"
#include "csrc/runtime/cuda/cuda_driver.h"

namespace ocl::distributed {

/// Called again and again while something is waited for. Throws to give up.
using GiveUp = std::function<void()>;

/// Returns NCCL's number of a type, and -1 if it has none.
int nccl_type(at::ScalarType dtype);
/// True if NCCL can do this reduction.
bool nccl_reduces(const Reduction& reduction);

class NcclCommunicator {
 public:
  /// Connects the ranks. All ranks call this with the id of one of them. Throws kDevice if NCCL fails.
  NcclCommunicator(const NcclLibrary& library, const NcclId& id, int ranks, int rank, const GiveUp& give_up);
  /// Closes the connections. Waits a few seconds for other ranks, unless abort() was called.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  /// Enqueues on stream() what `calls` makes, as one group of NCCL. Throws kDevice if NCCL fails.
  void enqueue(const std::function<void()>& calls, const GiveUp& give_up);
  /// Throws kDevice if NCCL has failed since then.
  void check_running() const;
  const runtime::CudaStream& stream() const { return stream_; }
  /// Gives up all work, so that nothing waits for it any more.
  void abort() noexcept;

  // Call these only in `calls` of enqueue(). Addresses are CUDA's, and counts are numbers of elements.
  void all_reduce(uint64_t in_place, int64_t count, const Reduction& reduction);
  void reduce(uint64_t in_place, int64_t count, const Reduction& reduction, int root);
  void reduce_scatter(uint64_t from, uint64_t to, int64_t count, const Reduction& reduction);
  void broadcast(uint64_t in_place, int64_t bytes, int root);
  void all_gather(uint64_t from, uint64_t to, int64_t bytes);
  void send(uint64_t from, int64_t bytes, int peer);
  void receive(uint64_t to, int64_t bytes, int peer);

 private:
  class Op;
  void check(int status, const char* call) const;
  void finish(int status, const char* call, const GiveUp& give_up) const;
  void close() noexcept;
  const NcclFunctions& nccl_;
  runtime::CudaStream stream_;
  NcclComm comm_ = nullptr;
};

}  // namespace ocl::distributed
