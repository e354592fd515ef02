// csrc/distributed/nccl_engine.h: the thread of a process group that uses NCCL. It does one call after the other:
// it waits for OpenCL, copies what CUDA cannot use, calls NCCL, waits for it, and copies the results.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "csrc/distributed/nccl_call.h"
#include "csrc/distributed/peers.h"
#include "csrc/distributed/transport.h"

namespace ocl::distributed {

class NcclEngine final : public Transport, public std::enable_shared_from_this<NcclEngine> {
 public:
  /// `communicator` connects the ranks of the group, on `device`. `store` is a part of the group's store that no other group
  /// has used.
  NcclEngine(std::unique_ptr<NcclCommunicator> communicator, runtime::Device& device, c10::intrusive_ptr<c10d::Store> store,
             RankNames names, std::chrono::milliseconds timeout);
  void start() override;
  void check_usable(const std::string& title) const override;
  void submit(const std::vector<JobPtr>& jobs) override;
  void shut_down() override;
  void abort(const std::string& reason) override;
  bool failed() const override;
  void set_timeout(std::chrono::milliseconds timeout) override;
  runtime::Device& device() const { return device_; }

 private:
  /// Jobs of one group of NCCL calls.
  using Batch = std::vector<JobPtr>;
  struct Staged;
  void run();
  void wake();
  void execute(const Batch& batch);
  Staged stage(const NcclBuffer& buffer);
  void unstage(const NcclBuffer& buffer, const Staged& staged);
  void give_up_if_hopeless();
  void finish(const Batch& batch);
  void fail(const Batch& batch, const std::exception_ptr& error) noexcept;
  bool has_ready_batch() const;

  std::unique_ptr<NcclCommunicator> communicator_;  // Only the thread uses it.
  runtime::Device& device_;
  const c10::intrusive_ptr<c10d::Store> store_;
  const RankNames names_;
  int stream_ = -1;  // OpenCL's stream of the copies. Only the thread uses it and the times below.
  std::chrono::steady_clock::time_point deadline_, next_look_;
  mutable std::mutex mutex_;  // Guards the members below.
  std::condition_variable woken_;
  std::deque<Batch> inbox_;
  std::chrono::milliseconds timeout_;
  bool stopping_ = false;
  std::string refusal_;       // Why jobs are refused; "" if they are not.
  std::string abort_reason_;  // Set by abort().
  std::thread thread_;
};

}  // namespace ocl::distributed
