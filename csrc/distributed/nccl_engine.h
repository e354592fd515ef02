// csrc/distributed/nccl_engine.h: the thread of a process group that uses NCCL. Several batches of calls are under way:
//
//   OpenCL  | inputs of 0 | inputs of 1 | other kernels |        | first kernel that needs a result
//   CUDA                                                | 0 | 1 |
//   thread                              held until here ^       ^ works are complete, the waiting streams go on
//
// A GPU gives its time to OpenCL and to CUDA in turn, some milliseconds each, and never runs kernels of both together
// (measured: H100, driver 580). A kernel of NCCL that got a turn would wait for those of the other ranks, which have theirs at
// other times. So the thread holds the batches until a stream or the host waits for a result, and the work that was enqueued
// before is done. Then NCCL has the GPU for itself.
//
// Tensors in memory that CUDA can use are used in place. Others are copied on the device.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "csrc/distributed/engine_thread.h"
#include "csrc/distributed/nccl_call.h"
#include "csrc/runtime/opencl/cl.h"

namespace ocl::distributed {

class NcclEngine final : public EngineThread {
 public:
  /// `communicator` connects the ranks of the group, on `device`. `store` is a part of the group's store that no other group
  /// has used.
  NcclEngine(std::unique_ptr<NcclCommunicator> communicator, runtime::Device& device, c10::intrusive_ptr<c10d::Store> store,
             RankNames names, std::chrono::milliseconds timeout);
  ~NcclEngine() override;
  void submit(const std::vector<JobPtr>& jobs) override;
  void set_timeout(std::chrono::milliseconds timeout) override;
  runtime::Device& device() const { return device_; }
  struct Batch;
  using BatchPtr = std::shared_ptr<Batch>;
  using Batches = std::deque<BatchPtr>;
  /// `queue` will wait for something that may be a result of this group. Returns the batches that were notified, which the
  /// caller may own last.
  Batches expect_wait(runtime::Queue& queue);

 private:
  struct Copy;
  using Events = std::vector<runtime::EventHandle>;
  void run() override;
  bool advance();
  bool end_first();
  bool start_next();
  bool may_start(Batch& batch);
  uint64_t place(const NcclBuffer& buffer, Batch& batch);
  runtime::EventHandle enqueue(const std::vector<Copy>& copies);
  void launch(Batch& batch);
  void complete(Batch& batch);
  void free_resources(Batch& batch) noexcept;
  void restart_clock();
  void give_up_if_hopeless();
  void fail(const std::exception_ptr& error) noexcept;

  std::unique_ptr<NcclCommunicator> communicator_;  // Only the thread uses it.
  runtime::Device& device_;
  const c10::intrusive_ptr<c10d::Store> store_;
  // Streams of Device::take_apart(). The first one is done when the results are there and has no commands, the second one has
  // the copies.
  const int results_, copies_;
  std::recursive_mutex submitting_;  // Makes the order of events of results_ that of the inbox.
  // Only the thread uses these:
  std::chrono::steady_clock::time_point deadline_, next_look_;
  // Guarded by the mutex. Only the thread changes started_, and reads it without the mutex.
  std::deque<BatchPtr> inbox_, started_;
  std::chrono::milliseconds timeout_;
};

}  // namespace ocl::distributed
