// csrc/distributed/group.h: the process group backend `ocl` of torch.distributed. gloo does the communication, or NCCL
// where the ranks agree on it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "csrc/distributed/alone.h"
#include "csrc/distributed/barrier.h"
#include "csrc/distributed/nccl_agreement.h"
#include "csrc/distributed/pieces.h"

namespace ocl::distributed {

/// Collectives of dense tensors on ocl devices. The tensors of one call are on one device. Calls return at once.
class Group final : public c10d::Backend {
 public:
  Group(c10::intrusive_ptr<c10d::Backend> gloo, c10::intrusive_ptr<c10d::Store> store, RankNames names,
        std::chrono::milliseconds timeout, const NcclSettings& nccl);
  bool uses_nccl() const { return nccl_ != nullptr; }
  /// Says which transport the group uses, and why not NCCL.
  const std::string& transport() const { return transport_; }
  ~Group() override;

  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  const std::string getBackendName() const override { return "ocl"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return number_; }
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr send(Tensors& tensors, int peer, int tag) override;
  WorkPtr recv(Tensors& tensors, int peer, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  /// Names all ranks that do not arrive, whatever `wait_all_ranks` says. Makes the host wait, but no stream.
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

 private:
  using Make = std::function<PiecePtr(int)>;
  struct Call {
    c10d::OpType type;
    const char* title;
    Tensors tensors, outputs;
    int pieces = 1;
    Make make = {};
    Lane lane{LaneKind::kCollective, 0, 0};
    bool host_waits = false;
    NcclCallPtr nccl = {};  // Null if only gloo can do it.
    // What a group of one rank does instead. No value if such a group communicates, too.
    std::optional<Copies> alone = std::nullopt;
  };
  /// Checks that all tensors are dense and on one ocl device. Each collective calls it before it looks at their memory.
  void check(const char* title, const Tensors& tensors) const;
  /// Throws if the group failed or was shut down.
  void check_usable(const char* title) const;
  /// Enqueues a call. Its tensors have passed check().
  WorkPtr submit(Call call);
  /// True if NCCL does the call. Throws kConfig if it should but the tensors are on another device than the group's.
  bool goes_to_nccl(const Call& call, const runtime::Device* device) const;
  WorkPtr reduce_all(const char* title, c10d::OpType type, Tensors& tensors, const c10d::ReduceOp& op,
                     std::chrono::milliseconds timeout);
  /// Gathers each inputs[i] of all ranks into outputs[i], one span per rank.
  WorkPtr gather_all(const char* title, c10d::OpType type, const Tensors& inputs, const TensorLists& outputs,
                     std::chrono::milliseconds timeout);
  WorkPtr scatter_reduced(const char* title, c10d::OpType type, const TensorLists& inputs, const Tensors& outputs,
                          const c10d::ReduceScatterOptions& opts);
  struct Transfer {
    c10d::OpType type;
    const char* title;
    Use use;
    Lane lane;
    std::function<WorkPtr(c10d::Backend&, Tensors&, int piece)> start;
    bool in_order = false;  // True if a piece reaches gloo only when the piece before it is done.
    bool host_waits = false;
  };
  /// Starts a send or receive of one tensor.
  WorkPtr transfer(Transfer how, Tensors& tensors);
  WorkPtr exchange(const char* title, c10d::OpType type, const Tensors& all, const Tensors& outputs, std::vector<Span> from,
                   std::vector<Span> to, std::chrono::milliseconds timeout);

  const std::shared_ptr<Transport> gloo_;
  std::shared_ptr<NcclEngine> nccl_;  // Null if the group does not use NCCL.
  std::string transport_;
  const c10::intrusive_ptr<Options> options_;
  MonitoredBarrier monitored_barrier_;
  std::atomic<uint64_t> number_{0};
  bool coalescing_ = false;
  std::vector<WorkPtr> coalesced_;
  std::vector<JobPtr> coalesced_jobs_;  // Of NCCL, which starts them together.
};

}  // namespace ocl::distributed
