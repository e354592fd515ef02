// csrc/torch/device_copy.cpp: finds the shortest way between the memories of two devices; see device_copy.h.
#include "csrc/torch/device_copy.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "csrc/runtime/device/peer_link.h"
#include "csrc/runtime/queues/event.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/host_allocator.h"
#include "csrc/torch/tensor_location.h"

namespace ocl::aten {
namespace {

constexpr size_t kPieceBytes = 64 << 20;  // Of copies by CUDA from or to memory that it cannot use.
constexpr size_t kStagedBytes = 1 << 20;  // Pageable host data up to this many bytes is staged, so the caller need not wait.

runtime::PeerLink* link_between(const at::Tensor& src, const at::Tensor& dst) {
  return runtime::PeerLink::between(device_at(src.device().index()), device_at(dst.device().index()));
}

/// One end of a copy: memory of a tensor, or two blocks that CUDA can use and that stand for pieces of the tensor in turn.
class End {
 public:
  explicit End(const at::Tensor& tensor)
      : queue(current_queue(tensor.device().index())),
        allocator_(device_at(tensor.device().index()).allocator()),
        memory_(location(tensor)),
        own_(allocator_.cuda_address(static_cast<const char*>(tensor.storage().data()) +
                                     tensor.storage_offset() * tensor.element_size())) {}
  ~End() {
    for (void* block : blocks_) allocator_.free(block);
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  bool is_in_place() const { return own_ != 0; }
  /// Returns CUDA's address of piece `number`, which begins at `offset`.
  uint64_t address(size_t number, size_t offset) const {
    return is_in_place() ? own_ + offset : allocator_.cuda_address(blocks_[number % 2]);
  }
  /// Allocates the blocks, for pieces of up to `bytes` bytes.
  void reserve(size_t bytes, size_t pieces) {
    for (size_t i = 0; !is_in_place() && i < std::min<size_t>(pieces, 2); ++i)
      blocks_[i] = allocator_.allocate(bytes, queue.stream(), runtime::Sharing::kCuda);
  }
  void copy_to_block(size_t number, size_t offset, size_t bytes) {
    if (is_in_place()) return;
    const runtime::Location block = allocator_.resolve(blocks_[number % 2]);
    queue.copy(memory_.mem, memory_.offset_bytes + offset, block.mem, block.offset_bytes, bytes);
  }
  void copy_from_block(size_t number, size_t offset, size_t bytes) {
    if (is_in_place()) return;
    const runtime::Location block = allocator_.resolve(blocks_[number % 2]);
    queue.copy(block.mem, block.offset_bytes, memory_.mem, memory_.offset_bytes + offset, bytes);
  }
  /// Returns an event that is complete after the work so far, and null if there is none.
  runtime::EventHandle work_so_far() const { return queue.has_work() ? queue.last_work() : runtime::EventHandle(); }

  runtime::Queue& queue;

 private:
  runtime::Allocator& allocator_;
  runtime::Location memory_;
  uint64_t own_;  // CUDA's address of the tensor's memory; 0 if CUDA cannot use it.
  std::array<void*, 2> blocks_{};
};

/// Copies by a link. Memory that CUDA cannot use is copied on its device, piece by piece: while the link copies one piece, the
/// source copies the next one into the other block, and the target copies the last one out of it.
bool send_by(runtime::PeerLink& link, const at::Tensor& src, const at::Tensor& dst) {
  link.open();
  End from(src), to(dst);
  const size_t bytes = dst.nbytes();
  if (bytes == 0) return true;
  const size_t most = from.is_in_place() && to.is_in_place() ? bytes : kPieceBytes;
  const size_t pieces = (bytes + most - 1) / most;
  const auto bytes_of = [&](size_t number) { return std::min(most, bytes - number * most); };
  try {
    from.reserve(bytes_of(0), pieces);
    to.reserve(bytes_of(0), pieces);
  } catch (const Error&) {
    return false;  // The host's memory serves, too.
  }
  from.copy_to_block(0, 0, bytes_of(0));
  runtime::EventHandle block_is_free = to.work_so_far();
  for (size_t i = 0; i < pieces; ++i) {
    runtime::EventHandle block_is_full = from.work_so_far();
    if (i + 1 < pieces) from.copy_to_block(i + 1, (i + 1) * most, bytes_of(i + 1));
    runtime::EventHandle target_ready = std::move(block_is_free);
    block_is_free = to.work_so_far();
    link.copy(from.queue, std::move(block_is_full), from.address(i, i * most), to.queue, std::move(target_ready),
              to.address(i, i * most), bytes_of(i));
    to.copy_from_block(i, i * most, bytes_of(i));
  }
  return true;
}

}  // namespace

void upload_bytes(const void* from, const at::Tensor& dst, bool non_blocking) {
  const size_t bytes = dst.nbytes();
  const runtime::Location to = location(dst);
  runtime::Queue& queue = current_queue(dst.device().index());
  if (is_pinned(from)) {
    queue.write(to.mem, to.offset_bytes, from, bytes, !non_blocking);
    if (non_blocking) hold_until_done(from, queue);
  } else if (bytes <= kStagedBytes) {
    const at::DataPtr staged = host_allocator()->allocate(bytes);
    std::memcpy(staged.get(), from, bytes);
    queue.write(to.mem, to.offset_bytes, staged.get(), bytes, false);
    hold_until_done(staged.get(), queue);
  } else {
    queue.write(to.mem, to.offset_bytes, from, bytes, true);
  }
}

bool can_send(const at::Tensor& src, const at::Tensor& dst) {
  return link_between(src, dst) != nullptr || location(src).host != nullptr || location(dst).host != nullptr;
}

bool send(const at::Tensor& src, const at::Tensor& dst) {
  if (runtime::PeerLink* link = link_between(src, dst)) return send_by(*link, src, dst);
  const runtime::Location from = location(src), to = location(dst);
  runtime::Queue &source = current_queue(src.device().index()), &target = current_queue(dst.device().index());
  if (from.host != nullptr) {
    runtime::Event(source, false).wait();
    upload_bytes(from.host, dst, false);
  } else if (to.host != nullptr) {
    runtime::Event(target, false).wait();
    source.read(from.mem, from.offset_bytes, to.host, dst.nbytes(), true);
  }
  return from.host != nullptr || to.host != nullptr;
}

bool can_access_peer(int device, int peer) {
  if (device == peer) return true;
  const runtime::PeerLink* link = runtime::PeerLink::between(device_at(device), device_at(peer));
  return link != nullptr && link->is_direct();
}

}  // namespace ocl::aten
