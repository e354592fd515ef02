// csrc/distributed/nccl_call.cpp: makes the calls of NCCL; see nccl_call.h.
#include "csrc/distributed/nccl_call.h"

#include <algorithm>
#include <utility>

#include "csrc/runtime/memory/slab_memory.h"

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

/// Returns how many elements of a span can lie in one piece of shared memory, together with as many of the other ranks. All
/// ranks cut alike.
int64_t slice_elements(const Span& span, size_t ranks = 1) {
  return static_cast<int64_t>(runtime::SlabMemory::kMostShared / span.element_bytes() / ranks);
}

Spans slices(const Span& span) {
  const int64_t most = slice_elements(span);
  Spans found;
  for (int64_t start = 0; start < span.count; start += most) found.push_back(span.slice(start, most));
  return found;
}

/// Returns the elements of each span from `start` on, at most `most`.
Spans slice_of_each(Spans spans, int64_t start, int64_t most) {
  for (Span& span : spans) span = span.slice(start, most);
  return spans;
}

/// A call with one buffer, which `run` gets slice by slice: CUDA's address, and the slice.
template <typename Run>
NcclCallPtr call_of_slices(const Span& span, Use use, Run run) {
  const Spans parts = slices(span);
  std::vector<NcclBuffer> buffers;
  for (const Span& part : parts) buffers.push_back({{part}, use});
  return call_of(buffers, [=](NcclCommunicator& nccl, const Addresses& at) {
    for (size_t i = 0; i < parts.size(); ++i) run(nccl, at[i], parts[i]);
  });
}

}  // namespace

NcclCallPtr nccl_all_reduce(const Spans& spans, const std::vector<Reduction>& reductions) {
  if (!has_all(reductions)) return nullptr;
  std::vector<NcclBuffer> buffers;
  std::vector<Reduction> of_buffers;
  for (size_t i = 0; i < spans.size(); ++i)
    for (const Span& part : slices(spans[i])) {
      buffers.push_back({{part}, Use::kReadWrite});
      of_buffers.push_back(reductions[i]);
    }
  return call_of(buffers, [=](NcclCommunicator& nccl, const Addresses& at) {
    for (size_t i = 0; i < buffers.size(); ++i) nccl.all_reduce(at[i], buffers[i].spans.front().count, of_buffers[i]);
  });
}

NcclCallPtr nccl_reduce(const Span& span, const Reduction& reduction, int root, bool is_root) {
  if (!nccl_reduces(reduction)) return nullptr;
  return call_of_slices(
      span, is_root ? Use::kReadWrite : Use::kRead,
      [=](NcclCommunicator& nccl, uint64_t at, const Span& part) { nccl.reduce(at, part.count, reduction, root); });
}

NcclCallPtr nccl_reduce_scatter(const std::vector<Spans>& inputs, const Spans& outputs,
                                const std::vector<Reduction>& reductions) {
  if (!has_all(reductions)) return nullptr;
  std::vector<NcclBuffer> buffers;
  std::vector<Reduction> of_pairs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int64_t most = slice_elements(outputs[i], inputs[i].size());
    for (int64_t start = 0; start < outputs[i].count; start += most) {
      buffers.push_back({joined(slice_of_each(inputs[i], start, most)), Use::kRead});
      buffers.push_back({{outputs[i].slice(start, most)}, Use::kWrite});
      of_pairs.push_back(reductions[i]);
    }
  }
  return call_of(buffers, [=](NcclCommunicator& nccl, const Addresses& at) {
    for (size_t i = 0; i < of_pairs.size(); ++i)
      nccl.reduce_scatter(at[2 * i], at[2 * i + 1], buffers[2 * i + 1].spans.front().count, of_pairs[i]);
  });
}

NcclCallPtr nccl_broadcast(const Span& span, int root, bool is_root) {
  return call_of_slices(span, is_root ? Use::kRead : Use::kWrite, [=](NcclCommunicator& nccl, uint64_t at, const Span& part) {
    nccl.broadcast(at, bytes_of(part), root);
  });
}

NcclCallPtr nccl_all_gather(const Spans& inputs, const std::vector<Spans>& outputs) {
  std::vector<NcclBuffer> buffers;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int64_t most = slice_elements(inputs[i], outputs[i].size());
    for (int64_t start = 0; start < inputs[i].count; start += most) {
      buffers.push_back({{inputs[i].slice(start, most)}, Use::kRead});
      buffers.push_back({joined(slice_of_each(outputs[i], start, most)), Use::kWrite});
    }
  }
  return call_of(buffers, [=](NcclCommunicator& nccl, const Addresses& at) {
    for (size_t i = 0; i < buffers.size(); i += 2) nccl.all_gather(at[i], at[i + 1], bytes_of(buffers[i].spans.front()));
  });
}

NcclCallPtr nccl_exchange(const Spans& from, const Spans& to) {
  std::vector<NcclBuffer> buffers;
  std::vector<int> peers;
  for (size_t rank = 0; rank < from.size(); ++rank)
    for (const auto& [span, use] : {std::pair(from[rank], Use::kRead), std::pair(to[rank], Use::kWrite)})
      for (const Span& part : slices(span)) {
        buffers.push_back({{part}, use});
        peers.push_back(static_cast<int>(rank));
      }
  return call_of(buffers, [=](NcclCommunicator& nccl, const Addresses& at) {
    for (size_t i = 0; i < buffers.size(); ++i) {
      const int64_t bytes = bytes_of(buffers[i].spans.front());
      if (buffers[i].use == Use::kRead)
        nccl.send(at[i], bytes, peers[i]);
      else
        nccl.receive(at[i], bytes, peers[i]);
    }
  });
}

NcclCallPtr nccl_send(const Span& span, int peer) {
  return call_of_slices(span, Use::kRead,
                        [=](NcclCommunicator& nccl, uint64_t at, const Span& part) { nccl.send(at, bytes_of(part), peer); });
}

NcclCallPtr nccl_receive(const Span& span, int peer) {
  return call_of_slices(span, Use::kWrite,
                        [=](NcclCommunicator& nccl, uint64_t at, const Span& part) { nccl.receive(at, bytes_of(part), peer); });
}

NcclCallPtr nccl_barrier(runtime::Device& device) {
  const Span number{&device, nullptr, 1, at::kByte};
  Reduction sum;
  sum.seen = sum.compute = at::kByte;
  return nccl_all_reduce({number}, {sum});
}

}  // namespace ocl::distributed
