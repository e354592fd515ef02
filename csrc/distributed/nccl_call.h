// csrc/distributed/nccl_call.h: what each collective does with NCCL.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "csrc/distributed/nccl_communicator.h"
#include "csrc/distributed/span.h"

namespace ocl::distributed {

/// Memory that NCCL sees as one run of bytes. If it is one span in memory that CUDA can use, NCCL gets that memory. Otherwise
/// NCCL gets a copy.
struct NcclBuffer {
  std::vector<Span> spans;  // A span without an address is memory whose contents do not matter.
  Use use = Use::kReadWrite;
};

struct NcclCall {
  std::vector<NcclBuffer> buffers;
  /// Enqueues the calls of NCCL. addresses[i] is CUDA's address of buffers[i].
  std::function<void(NcclCommunicator&, const std::vector<uint64_t>& addresses)> enqueue;
};
using NcclCallPtr = std::shared_ptr<const NcclCall>;

using Spans = std::vector<Span>;

// Each function returns the call of a collective. Functions of reductions return nullptr if NCCL lacks one of them.
// They use spans of the `seen` type; other functions use spans of bytes.
NcclCallPtr nccl_all_reduce(const Spans& spans, const std::vector<Reduction>& reductions);
NcclCallPtr nccl_reduce(const Span& span, const Reduction& reduction, int root, bool is_root);
/// inputs[i] has a span for each rank, and outputs[i] is this rank's part of the result.
NcclCallPtr nccl_reduce_scatter(const std::vector<Spans>& inputs, const Spans& outputs,
                                const std::vector<Reduction>& reductions);
NcclCallPtr nccl_broadcast(const Span& span, int root, bool is_root);
/// outputs[i] has a span for each rank.
NcclCallPtr nccl_all_gather(const Spans& inputs, const std::vector<Spans>& outputs);
/// Sends from[r] to rank r, and receives to[r] from it.
NcclCallPtr nccl_exchange(const Spans& from, const Spans& to);
NcclCallPtr nccl_send(const Span& span, int peer);
NcclCallPtr nccl_receive(const Span& span, int peer);
/// A sum of one number of each rank. It is done when all ranks have called it.
NcclCallPtr nccl_barrier(runtime::Device& device);

}  // namespace ocl::distributed
