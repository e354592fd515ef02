// csrc/distributed/nccl_engine.h: the thread of a process group that uses NCCL. It does one call after the other:
// it waits for OpenCL, copies what CUDA cannot use, calls NCCL, waits for it, and copies the results.
#pragma once

#include <deque>
#include <memory>

#include "csrc/distributed/engine_thread.h"
#include "csrc/distributed/nccl_call.h"

namespace ocl::distributed {

class NcclEngine final : public EngineThread {
 public:
  /// `communicator` connects the ranks of the group, on `device`. `store` is a part of the group's store that no other group
  /// has used.
  NcclEngine(std::unique_ptr<NcclCommunicator> communicator, runtime::Device& device, c10::intrusive_ptr<c10d::Store> store,
             RankNames names, std::chrono::milliseconds timeout);
  void submit(const std::vector<JobPtr>& jobs) override;
  void set_timeout(std::chrono::milliseconds timeout) override;
  runtime::Device& device() const { return device_; }

 private:
  /// Jobs of one group of NCCL calls.
  using Batch = std::vector<JobPtr>;
  struct Staged;
  void run() override;
  void execute(const Batch& batch);
  Staged stage(const NcclBuffer& buffer);
  void copy_spans(const NcclBuffer& buffer, const Staged& staged, bool to_block);
  void unstage(const NcclBuffer& buffer, const Staged& staged);
  void give_up_if_hopeless();
  void finish(const Batch& batch);
  void fail(const Batch& batch, const std::exception_ptr& error) noexcept;
  bool has_ready_batch() const;

  std::unique_ptr<NcclCommunicator> communicator_;  // Only the thread uses it.
  runtime::Device& device_;
  const c10::intrusive_ptr<c10d::Store> store_;
  int stream_ = -1;  // OpenCL's stream of the copies. Only the thread uses it and the times below.
  std::chrono::steady_clock::time_point deadline_, next_look_;
  // Guarded by the mutex:
  std::deque<Batch> inbox_;
  std::chrono::milliseconds timeout_;
};

}  // namespace ocl::distributed
