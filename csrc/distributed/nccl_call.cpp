// csrc/distributed/nccl_call.cpp: makes the calls of NCCL; see nccl_call.h.
#include "csrc/distributed/nccl_call.h"

#include <algorithm>
#include <utility>

namespace ocl::distributed {
namespace {

using Addresses = std::vector<uint64_t>;

NcclCallPtr call_of(std::vector<NcclBuffer> buffers, std::function<void(NcclCommunicator&, const Addresses&)> enqueue) {
  return std::make_shared<NcclCall>(NcclCall{std::move(buffers), std::move(enqueue)});
}

int64_t bytes_of(const Span& span) { return span.count * static_cast<int64_t>(span.element_bytes()); }

bool has_all(const std::vector<Reduction>& reductions) {
  return std::all_of(reductions.begin(), reductions.end(), &nccl_reduces);
}

/// Joins the spans of all ranks, if they are the parts of one tensor.
Spans joined(const Spans& parts) {
  for (size_t i = 1; i < parts.size(); ++i)
    if (parts[i].address != parts[i - 1].address + bytes_of(parts[i - 1])) return parts;
  Span whole = parts.front();
  for (size_t i = 1; i < parts.size(); ++i) whole.count += parts[i].count;
  return {whole};
}

}  // namespace

NcclCallPtr nccl_all_reduce(const Spans& spans, const std::vector<Reduction>& reductions) {
  if (!has_all(reductions)) return nullptr;
  std::vector<NcclBuffer> buffers;
  for (const Span& span : spans) buffers.push_back({{span}, Use::kReadWrite});
  return call_of(buffers, [=](NcclCommunicator& nccl, const Addresses& at) {
    for (size_t i = 0; i < spans.size(); ++i) nccl.all_reduce(at[i], spans[i].count, reductions[i]);
  });
}

NcclCallPtr nccl_reduce(const Span& span, const Reduction& reduction, int root, bool is_root) {
  if (!nccl_reduces(reduction)) return nullptr;
  return call_of({{{span}, is_root ? Use::kReadWrite : Use::kRead}},
                 [=](NcclCommunicator& nccl, const Addresses& at) { nccl.reduce(at[0], span.count, reduction, root); });
}

NcclCallPtr nccl_reduce_scatter(const std::vector<Spans>& inputs, const Spans& outputs,
                                const std::vector<Reduction>& reductions) {
  if (!has_all(reductions)) return nullptr;
  std::vector<NcclBuffer> buffers;
  for (size_t i = 0; i < outputs.size(); ++i) {
    buffers.push_back({joined(inputs[i]), Use::kRead});
    buffers.push_back({{outputs[i]}, Use::kWrite});
  }
  return call_of(buffers, [=](NcclCommunicator& nccl, const Addresses& at) {
    for (size_t i = 0; i < outputs.size(); ++i) nccl.reduce_scatter(at[2 * i], at[2 * i + 1], outputs[i].count, reductions[i]);
  });
}

NcclCallPtr nccl_broadcast(const Span& span, int root, bool is_root) {
  return call_of({{{span}, is_root ? Use::kRead : Use::kWrite}},
                 [=](NcclCommunicator& nccl, const Addresses& at) { nccl.broadcast(at[0], bytes_of(span), root); });
}

NcclCallPtr nccl_all_gather(const Spans& inputs, const std::vector<Spans>& outputs) {
  std::vector<NcclBuffer> buffers;
  for (size_t i = 0; i < inputs.size(); ++i) {
    buffers.push_back({{inputs[i]}, Use::kRead});
    buffers.push_back({joined(outputs[i]), Use::kWrite});
  }
  return call_of(buffers, [=](NcclCommunicator& nccl, const Addresses& at) {
    for (size_t i = 0; i < inputs.size(); ++i) nccl.all_gather(at[2 * i], at[2 * i + 1], bytes_of(inputs[i]));
  });
}

NcclCallPtr nccl_exchange(const Spans& from, const Spans& to) {
  return call_of({{joined(from), Use::kRead}, {joined(to), Use::kWrite}}, [=](NcclCommunicator& nccl, const Addresses& at) {
    uint64_t sent = at[0], received = at[1];
    for (size_t rank = 0; rank < from.size(); ++rank) {
      const int peer = static_cast<int>(rank);
      if (from[rank].count > 0) nccl.send(sent, bytes_of(from[rank]), peer);
      if (to[rank].count > 0) nccl.receive(received, bytes_of(to[rank]), peer);
      sent += static_cast<uint64_t>(bytes_of(from[rank]));
      received += static_cast<uint64_t>(bytes_of(to[rank]));
    }
  });
}

NcclCallPtr nccl_send(const Span& span, int peer) {
  return call_of({{{span}, Use::kRead}},
                 [=](NcclCommunicator& nccl, const Addresses& at) { nccl.send(at[0], bytes_of(span), peer); });
}

NcclCallPtr nccl_receive(const Span& span, int peer) {
  return call_of({{{span}, Use::kWrite}},
                 [=](NcclCommunicator& nccl, const Addresses& at) { nccl.receive(at[0], bytes_of(span), peer); });
}

NcclCallPtr nccl_barrier(runtime::Device& device) {
  const Span number{&device, nullptr, 1, at::kByte};
  Reduction sum;
  sum.seen = sum.compute = at::kByte;
  return nccl_all_reduce({number}, {sum});
}

}  // namespace ocl::distributed
