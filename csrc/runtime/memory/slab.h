// csrc/runtime/memory/slab.h: slabs, the blocks they are cut into, and the free blocks of each stream. This code is only
// bookkeeping: it never calls the device.
//
//   slab    | block  | free | block | block | free |   one cl_mem; blocks tile it without gaps
//   block   | requested bytes | 1 or more bytes of padding |
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "csrc/runtime/cuda/cuda_memory.h"
#include "csrc/runtime/opencl/cl.h"
#include "csrc/runtime/record/location.h"
#include "csrc/runtime/record/memory_history.h"
#include "csrc/runtime/record/memory_stats.h"

namespace ocl::runtime {

/// The kind of slab that serves a request. Requests of very different sizes do not share slabs. Otherwise a small
/// tensor would keep a large block from being reused or freed. kShared: memory with a CUDA address, in any size. kRetired:
/// slabs that serve a request only where nothing else can. kForeign: buffers of the program, which serve no request.
enum Pool { kSmall, kLarge, kOwn, kShared, kRetired, kForeign, kPools };

struct Slab;

struct Block {
  Slab* slab = nullptr;
  size_t offset = 0, bytes = 0, requested = 0;
  bool free = true;
  // The stream for which the block was allocated, or, of a free block, the stream whose later work may reuse it.
  int stream = 0;
  Block *previous = nullptr, *next = nullptr;  // The neighbours in the slab.
  std::vector<int> users;                      // Other streams that use the block.
  int pending = 0;                             // A freed block: number of events of other streams that are not done.
  uint64_t version = 0;                        // Changes whenever the contents change.
  int writer = 0;                              // The stream that wrote the contents last.
  bool written_outside = false;                // CUDA may write to the block. The allocator does not see such writes.
  std::vector<std::weak_ptr<Dependent>> dependents;
  PurposeText purpose;  // Null if no compiled graph asked for the block.
  CallSite site;        // The call site of the allocation, if call sites are recorded.

  uintptr_t address() const;
};

struct Slab {
  std::unique_ptr<CudaMemory> cuda;  // The memory of `mem`, if CUDA created it. Always in slabs of kShared.
  MemHandle mem;
  std::byte* host = nullptr;  // Host memory that was allocated for `mem`, or nullptr.
  uintptr_t address = 0;
  size_t bytes = 0;
  Pool pool = kSmall;
  int stream = 0;                   // The stream that gets the slab's free blocks.
  CallSite site;                    // The allocation that needed the slab, if call sites are recorded.
  std::map<size_t, Block*> blocks;  // Offset -> block, free blocks included. Owned.

  // Constructs a slab that is one free block. The block is in no list yet.
  Slab(size_t bytes_, Pool pool_, int stream_);
  ~Slab();
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  /// Returns the block that contains `value`, an address inside the slab.
  Block* block_at(uintptr_t value) const noexcept;
};

inline uintptr_t Block::address() const { return slab->address + offset; }

/// The free blocks of one device. A block may be reused only by its stream, whose queue runs the earlier work on the
/// block first.
class FreeBlocks {
 public:
  explicit FreeBlocks(MemoryStats& stats) : stats_(stats) {}
  void insert(Block* block);
  void erase(Block* block);
  /// Returns the smallest free block of the stream with at least `bytes` bytes; nullptr if there is none.
  Block* best_fit(int stream, Pool pool, size_t bytes) const;
  /// Returns the smallest such block of all streams and pools. Call it only while the device has no work.
  Block* best_fit_anywhere(size_t bytes) const;
  /// Removes `block` from the lists. Cuts it to `bytes` if at least `least_rest` bytes are left over.
  void take(Block* block, size_t bytes, size_t least_rest);
  /// Joins a block with its free neighbours of the same stream and puts it into a list. Nothing may use the block any
  /// more.
  void give_back(Block* block);
  /// Gives all free blocks of a slab to the slab's stream and joins them. Call it only while the device has no work.
  void rejoin(Slab* slab);
  /// Moves a slab to kRetired.
  void retire(Slab* slab);
  /// Returns the slabs that consist of a single free block.
  std::vector<Slab*> unused_slabs() const;

 private:
  struct BySize {
    using is_transparent = void;
    bool operator()(const Block* a, size_t bytes) const { return a->bytes < bytes; }
    bool operator()(const Block* a, const Block* b) const;
  };
  using List = std::set<Block*, BySize>;
  void count(const Block* block, bool listed);
  MemoryStats& stats_;
  std::vector<std::array<List, kPools>> of_stream_;
};

}  // namespace ocl::runtime
