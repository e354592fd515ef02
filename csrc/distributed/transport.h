// csrc/distributed/transport.h: what carries out the collectives of a group: gloo (engine.h) or NCCL (nccl_engine.h).
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "csrc/distributed/work.h"

namespace ocl::distributed {

struct Piece;
struct NcclCall;
using PiecePtr = std::shared_ptr<Piece>;

/// Works of one lane reach gloo in order. Works of different lanes do not wait for each other.
enum class LaneKind : uint8_t { kCollective, kSend, kReceive };
using Lane = std::tuple<LaneKind, int, int>;  // Kind, peer, tag.

/// One collective, send or receive.
struct Job {
  c10::intrusive_ptr<GroupWork> work;
  runtime::Device* device = nullptr;
  std::vector<at::Tensor> tensors = {};  // All tensors that the job reads or writes.

  // How gloo does it.
  Lane lane{LaneKind::kCollective, 0, 0};
  int pieces = 1;
  std::function<PiecePtr(int)> make = {};
  bool has_source = false;  // True if gloo's work knows which rank sent.
  // How NCCL does it. Null if it cannot.
  std::shared_ptr<const NcclCall> nccl = {};

  // The state of the job.
  std::exception_ptr error = nullptr;  // Why the job cannot run. Written before `ready`.
  std::atomic<bool> ready{false};      // True when the work is done that was on the collective's stream before it.
  int started = 0;
};
using JobPtr = std::shared_ptr<Job>;

class Transport {
 public:
  virtual ~Transport() = default;
  virtual void start() = 0;
  /// Throws if the group failed or was shut down, or if this process is a fork of the one that made it. `title` names the call.
  virtual void check_usable(const std::string& title) const = 0;
  /// Queues jobs behind the work of the current stream of their device. Throws if the group failed or was shut down. Jobs of
  /// one call do not wait for each other.
  virtual void submit(const std::vector<JobPtr>& jobs) = 0;
  /// Waits until all jobs are done or have failed, then ends the thread. Later jobs are refused.
  virtual void shut_down() = 0;
  /// Fails all jobs and refuses later ones.
  virtual void abort(const std::string& reason) = 0;
  virtual bool failed() const = 0;
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
};

/// Sets job->ready when the work that is on the current stream of its device now is done, then calls `wake`. That may happen in
/// this call, which waits for the work on a CPU device, or later in a thread of the driver. If this throws, `wake` has been
/// called, and job->error is set.
void watch_stream(const JobPtr& job, const std::function<void()>& wake);

/// Remembers a transport until it is destroyed, for end_transports().
void remember(const std::shared_ptr<Transport>& transport);
/// Shuts down the transports that still exist, because the process ends.
void end_transports() noexcept;

}  // namespace ocl::distributed
