// csrc/torch/device_copy.cpp: finds the shortest way between the memories of two devices; see device_copy.h.
#include "csrc/torch/device_copy.h"

#include <algorithm>
#include <cstring>

#include "csrc/runtime/device/peer_link.h"
#include "csrc/runtime/memory/slab_memory.h"
#include "csrc/runtime/queues/event.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/host_allocator.h"
#include "csrc/torch/tensor_location.h"

namespace ocl::aten {
namespace {

constexpr size_t kStagedBytes = 1 << 20;  // Pageable host data up to this many bytes is staged, so the caller need not wait.

runtime::PeerLink* link_between(const at::Tensor& src, const at::Tensor& dst) {
  return runtime::PeerLink::between(device_at(src.device().index()), device_at(dst.device().index()));
}

/// One end of a copy: memory of a tensor, or a block that CUDA can use and that stands for a piece of the tensor.
class End {
 public:
  explicit End(const at::Tensor& tensor)
      : queue(current_queue(tensor.device().index())),
        allocator_(device_at(tensor.device().index()).allocator()),
        memory_(location(tensor)),
        own_(allocator_.cuda_address(static_cast<const char*>(tensor.storage().data()) +
                                     tensor.storage_offset() * tensor.element_size())) {}
  ~End() { allocator_.free(block_); }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  bool is_in_place() const { return own_ != 0; }
  /// Returns CUDA's address of the piece that begins at `offset`.
  uint64_t address(size_t offset) const { return is_in_place() ? own_ + offset : allocator_.cuda_address(block_); }
  /// Allocates the block, for pieces of up to `bytes` bytes. The queue orders its uses, so one block serves all pieces.
  void reserve(size_t bytes) {
    if (!is_in_place()) block_ = allocator_.allocate(bytes, queue.stream(), runtime::Sharing::kCuda);
  }
  void copy_to_block(size_t offset, size_t bytes) {
    if (is_in_place()) return;
    const runtime::Location block = allocator_.resolve(block_);
    queue.copy(memory_.mem, memory_.offset_bytes + offset, block.mem, block.offset_bytes, bytes);
  }
  void copy_from_block(size_t offset, size_t bytes) {
    if (is_in_place()) return;
    const runtime::Location block = allocator_.resolve(block_);
    queue.copy(block.mem, block.offset_bytes, memory_.mem, memory_.offset_bytes + offset, bytes);
  }

  runtime::Queue& queue;

 private:
  runtime::Allocator& allocator_;
  runtime::Location memory_;
  uint64_t own_;  // CUDA's address of the tensor's memory; 0 if CUDA cannot use it.
  void* block_ = nullptr;
};

/// Copies by a link. Memory that CUDA cannot use is copied on its device, piece by piece.
bool send_by(runtime::PeerLink& link, const at::Tensor& src, const at::Tensor& dst) {
  link.open();
  End from(src), to(dst);
  const size_t bytes = dst.nbytes();
  const size_t most = from.is_in_place() && to.is_in_place() ? bytes : runtime::SlabMemory::kMostShared;
  try {
    from.reserve(std::min(bytes, most));
    to.reserve(std::min(bytes, most));
  } catch (const Error&) {
    return false;  // The host's memory serves, too.
  }
  for (size_t done = 0; done < bytes; done += most) {
    const size_t piece = std::min(most, bytes - done);
    from.copy_to_block(done, piece);
    link.copy(from.queue, from.address(done), to.queue, to.address(done), piece);
    to.copy_from_block(done, piece);
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
