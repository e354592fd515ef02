// csrc/distributed/pieces.cpp: makes pieces; see pieces.h. If a device's memory is host memory, gloo gets it directly.
// Otherwise gloo gets pinned memory.
#include "csrc/distributed/pieces.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "csrc/runtime/device/device.h"
#include "csrc/runtime/memory/allocator.h"

namespace ocl::distributed {
namespace {

std::atomic<bool> g_host_mapping{true};

at::Tensor pinned(int64_t count, at::ScalarType dtype) {
  return at::empty({count}, at::TensorOptions().dtype(dtype).pinned_memory(true));
}

/// Returns a host tensor with the elements of `span`. It is the span's own memory if the host can use it. Otherwise it is
/// pinned memory, and `piece` gets the copies that `use` needs.
at::Tensor on_host(const Span& span, Use use, Piece& piece) {
  if (span.count == 0) return at::empty({0}, at::TensorOptions().dtype(span.dtype));
  std::byte* mapped = g_host_mapping ? span.device->allocator().resolve(span.address).host : nullptr;
  if (mapped != nullptr) return at::from_blob(mapped, {span.count}, at::TensorOptions().dtype(span.dtype));
  at::Tensor host = pinned(span.count, span.dtype);
  const Copy copy{span.address, host.data_ptr(), static_cast<size_t>(span.count) * span.element_bytes()};
  if (use != Use::kWrite) piece.downloads.push_back(copy);
  if (use != Use::kRead) piece.uploads.push_back(copy);
  piece.memory.push_back(host);
  return host;
}

/// Returns pinned memory for all spans, one after the other. `piece` gets copies in one direction: to the host if `download`.
at::Tensor joined(const std::vector<Span>& spans, bool download, Piece& piece) {
  int64_t count = 0;
  for (const Span& span : spans) count += span.count;
  at::Tensor host = pinned(count, spans.empty() ? at::kByte : spans.front().dtype);
  auto* at = static_cast<char*>(host.data_ptr());
  for (const Span& span : spans) {
    const size_t bytes = static_cast<size_t>(span.count) * span.element_bytes();
    if (bytes > 0) (download ? piece.downloads : piece.uploads).push_back({span.address, at, bytes});
    at += bytes;
  }
  piece.memory.push_back(host);
  return host;
}

using SharedTensors = std::shared_ptr<std::vector<at::Tensor>>;
SharedTensors share(std::vector<at::Tensor> list) { return std::make_shared<std::vector<at::Tensor>>(std::move(list)); }

}  // namespace

void set_host_mapping(bool on) { g_host_mapping = on; }

int64_t piece_elements(size_t element_bytes, int ranks) {
  constexpr int64_t kLeast = 64 << 10;
  return std::max(Engine::kPieceBytes / ranks, kLeast) / static_cast<int64_t>(element_bytes);
}

int piece_count(int64_t elements, int64_t per_piece) {
  return static_cast<int>(std::max<int64_t>(1, (elements + per_piece - 1) / per_piece));
}

PiecePtr in_place_piece(const Span& span, Use use, Start start) {
  auto piece = std::make_shared<Piece>();
  const SharedTensors list = share({on_host(span, use, *piece)});
  piece->post = [list, start = std::move(start)](c10d::Backend& gloo) { return start(gloo, *list); };
  return piece;
}

PiecePtr reduce_piece(const Span& span, const Reduction& reduction, bool writes, Start start) {
  auto piece = std::make_shared<Piece>();
  const at::Tensor host = on_host(span, writes ? Use::kReadWrite : Use::kRead, *piece);
  const SharedTensors list = share({host});
  // On ranks that do not get the result, gloo may still write to the memory, so these ranks give it a copy.
  const bool converts = reduction.converts() || !writes;
  piece->post = [=, start = std::move(start)](c10d::Backend& gloo) {
    if (converts) list->front() = reduction.prepare(host);
    return start(gloo, *list);
  };
  if (writes)
    piece->finish = [=] {
      reduction.divide(list->front());
      if (converts) host.copy_(list->front());
    };
  return piece;
}

PiecePtr exchange_piece(const std::vector<Span>& inputs, const std::vector<Span>& outputs, Start start) {
  auto piece = std::make_shared<Piece>();
  const at::Tensor in = inputs.size() == 1 ? on_host(inputs.front(), Use::kRead, *piece) : joined(inputs, true, *piece);
  const at::Tensor out = outputs.size() == 1 ? on_host(outputs.front(), Use::kWrite, *piece) : joined(outputs, false, *piece);
  const SharedTensors list = share({in, out});
  piece->post = [list, start = std::move(start)](c10d::Backend& gloo) { return start(gloo, *list); };
  return piece;
}

PiecePtr reduce_scatter_piece(const std::vector<Span>& inputs, const Span& output, const Reduction& reduction,
                              std::chrono::milliseconds timeout) {
  auto piece = std::make_shared<Piece>();
  const at::Tensor in = joined(inputs, true, *piece), result = on_host(output, Use::kWrite, *piece);
  const SharedTensors list = share({in, at::Tensor()});
  const auto ranks = static_cast<int64_t>(inputs.size());
  piece->post = [=](c10d::Backend& gloo) {
    // A factor is applied before values leave their rank, in the type of the reduction, so that it does not round them.
    if (reduction.factor) list->front() = reduction.prepare(in);
    list->back() = at::empty_like(list->front());
    std::vector<int64_t> equal_in, equal_out;
    at::Tensor sent = list->front().view(at::kByte), received = list->back().view(at::kByte);
    c10d::AllToAllOptions options;
    options.timeout = timeout;
    return gloo.alltoall_base(received, sent, equal_out, equal_in, options);
  };
  piece->finish = [=] { result.copy_(reduction.combine(list->back().to(reduction.compute).view({ranks, -1}))); };
  return piece;
}

}  // namespace ocl::distributed
