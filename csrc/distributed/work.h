// csrc/distributed/work.h: what torch gets for one started collective.
#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "csrc/runtime/opencl/cl.h"
#include "csrc/runtime/queues/queue.h"
#include "csrc/runtime/queues/signal.h"

namespace ocl::distributed {

/// wait() makes the current stream of the device wait for the results. It makes the host wait only where the host needs
/// a result (barrier, source of a receive), or if a timeout is given. If the collective fails after wait() returned, the
/// next call that waits for that stream throws.
class GroupWork final : public c10d::Work {
 public:
  /// `device` may be null, for work without tensors. result() and the future give `outputs`. Profilers show the work with the
  /// shapes of `inputs`, from now until it is complete or wait() returns.
  GroupWork(int rank, c10d::OpType type, std::string title, uint64_t number, runtime::Device* device,
            const std::vector<at::Tensor>& inputs, std::vector<at::Tensor> outputs, bool host_waits);

  const std::string& title() const { return title_; }
  uint64_t number() const { return number_; }

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void blockCurrentStream() override { synchronize(); }
  /// After wait(), the future has its value, so the host waits here: DistributedDataParallel reads the value at once.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return number_; }

  /// Call when the results will be there as soon as complete_enqueued() is called. Streams and the future need not wait for the
  /// host then: the future has its value, and its event is that of `apart`, a stream of Device::take_apart() without commands.
  /// Calls with the same stream come one after the other.
  void enqueue(int apart);
  /// Call when the results of an enqueued work are in place.
  void complete_enqueued();
  /// A stream waits for something that may be this work. If the work fails, the stream raises the error.
  void add_waiting(runtime::Queue& queue);
  /// Call when the results are written, or when work that will write them is enqueued on stream `stream` of the device. Runs
  /// the callbacks of the future.
  void complete(int stream, int source_rank);
  void fail(const std::exception_ptr& error, const std::string& message);

 private:
  void wait_on_host(std::chrono::milliseconds timeout);
  void wait_a_moment();
  void end_record();

  const std::string title_;
  const uint64_t number_;
  runtime::Device* const device_;
  const std::vector<at::Tensor> outputs_;
  const bool host_waits_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  // Streams that wait before the work is complete wait for signal_, later ones for done_. The signal is made when it is needed:
  // a driver may take milliseconds to start work behind an event that the host completes.
  std::shared_ptr<runtime::Signal> signal_;
  std::set<runtime::Queue*> waiting_;  // Queues that wait for signal_.
  runtime::EventHandle done_;          // Complete when the results are in place. Null without a device, and after a failure.
  int done_stream_ = 0;
  std::atomic<bool> waited_{false};
  bool enqueued_ = false;
  int source_rank_ = -1;
};

/// Joins several works into one.
class JointWork final : public c10d::Work {
 public:
  JointWork(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> parts);
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> parts_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace ocl::distributed
