// csrc/distributed/engine.h: the thread of a process group. It cuts collectives into pieces. Each piece is copied to the host,
// given to gloo and copied back, while other pieces are in other stages.
//
//   piece 0   | to host | gloo    | to device |
//   piece 1             | to host | gloo      | to device |        up to kWindow pieces of a lane at a time
//   piece 2                       | to host   | gloo      | to device |
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <tuple>
#include <vector>

#include "csrc/distributed/engine_thread.h"

namespace ocl::distributed {

/// Bytes of device memory at `device` (an address of the allocator) and of host memory.
struct Copy {
  void* device;
  void* host;
  size_t bytes;
};

/// A part of a collective. Its downloads, a call of gloo, a function on the host (`finish`) and its uploads run in this order.
struct Piece {
  std::vector<Copy> downloads = {}, uploads = {};
  /// Calls gloo. The closure owns the tensors that gloo reads or writes.
  std::function<c10::intrusive_ptr<c10d::Work>(c10d::Backend& gloo)> post = {};
  std::function<void()> finish = {};
  // Host memory that the copies use.
  std::vector<at::Tensor> memory = {};
  // True for sends and receives: their works have no future, so a thread waits for each.
  bool needs_waiter = false;
  bool after_previous = false;  // True if gloo gets the piece only when all pieces before it in its lane are done.

  // The state of the piece. Driver and gloo threads set the flags.
  std::atomic<bool> downloaded{false}, done{false};
  bool posted = false;
  c10::intrusive_ptr<c10d::Work> work = {};
  std::exception_ptr error = nullptr;  // Written before `done`.
};

/// The transport that uses gloo.
class Engine final : public EngineThread {
 public:
  Engine(c10::intrusive_ptr<c10d::Backend> gloo, c10::intrusive_ptr<c10d::Store> store, RankNames names);
  void submit(const std::vector<JobPtr>& jobs) override;
  void set_timeout(std::chrono::milliseconds timeout) override;

  static constexpr int kWindow = 4;
  static constexpr int64_t kPieceBytes = int64_t{4} << 20;

 private:
  struct Active {
    JobPtr job;
    PiecePtr piece;
    bool last = false;
  };
  struct LaneState {
    std::deque<JobPtr> jobs;  // Jobs with pieces that were not started.
    std::deque<Active> active;
  };
  struct Streams {
    int down, up;
  };

  void run() override;
  bool advance(LaneState& lane);
  void begin(LaneState& lane);
  bool download(runtime::Device& device, const Piece& piece);
  void post(Active& active);
  void end(Active active);
  void watch(const PiecePtr& piece);
  Streams streams(runtime::Device& device);
  void fail(const JobPtr& culprit, const std::exception_ptr& error) noexcept;
  std::string describe(const JobPtr& culprit, const std::string& reason);
  void release_gloo() noexcept;

  c10::intrusive_ptr<c10d::Backend> gloo_;  // Null after a failure. Only the thread uses and drops it.
  const c10::intrusive_ptr<c10d::Store> store_;
  std::map<Lane, LaneState> lanes_;  // Only the thread uses it.
  std::map<int, Streams> streams_;   // Only the thread uses it.
  // gloo's group, if no thread could be started to close its connections: they are closed when the engine's thread
  // ends. Only this thread uses it.
  c10::intrusive_ptr<c10d::Backend> closed_late_;
  // Guarded by the mutex:
  std::vector<JobPtr> inbox_;
  size_t unfinished_ = 0;
};

}  // namespace ocl::distributed
