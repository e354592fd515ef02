// csrc/runtime/slab.h: slabs cut into blocks, and the free blocks by stream. Bookkeeping alone: nothing here calls the device.
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

#include "csrc/runtime/allocator.h"
#include "csrc/runtime/cl.h"
#include "csrc/runtime/memory_history.h"
#include "csrc/runtime/memory_stats.h"

namespace ocl::runtime {

/// Which slabs a request is carved from. Requests of different magnitude do not share slabs, or a small tensor would keep a
/// large block from being reused or given back.
enum Pool { kSmall, kLarge, kOwn, kPools };

struct Slab;

struct Block {
  Slab* slab = nullptr;
  size_t offset = 0, bytes = 0, requested = 0;
  bool free = true;
  int stream = 0;                              // whose order its memory follows: allocated for it, or free for it
  Block *previous = nullptr, *next = nullptr;  // neighbours in the slab
  std::vector<int> users;                      // other streams that use it
  int pending = 0;                             // for a freed block: events of other streams that are not done
  uint64_t version = 0;                        // changes with the contents
  int writer = 0;                              // the stream that wrote the contents last
  std::vector<std::weak_ptr<Dependent>> dependents;
  PurposeText purpose;  // null: no compiled graph asked for it
  CallSite site;        // of its allocation, if sites are recorded

  uintptr_t address() const;
};

struct Slab {
  MemHandle mem;
  std::byte* host = nullptr;  // memory of ours under `mem`
  uintptr_t address = 0;
  size_t bytes = 0;
  Pool pool = kSmall;
  int stream = 0;                   // whose free blocks its parts become
  CallSite site;                    // of the allocation that needed it, if sites are recorded
  std::map<size_t, Block*> blocks;  // by offset, free ones too; owned

  Slab(size_t bytes_, Pool pool_, int stream_);  // one free block, which is in no list yet
  ~Slab();
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  /// The block that holds `value`, an address inside the slab.
  Block* block_at(uintptr_t value) const noexcept;
};

inline uintptr_t Block::address() const { return slab->address + offset; }

/// The free blocks of one device. A block may be handed out to its stream alone: the work that used it before is ahead of the
/// new work in that stream's queue.
class FreeBlocks {
 public:
  explicit FreeBlocks(MemoryStats& stats) : stats_(stats) {}
  void insert(Block* block);
  void erase(Block* block);
  /// The smallest free block of the stream with that many bytes; nullptr if there is none.
  Block* best_fit(int stream, Pool pool, size_t bytes) const;
  /// The same over all streams and pools: only while the device has no work.
  Block* best_fit_anywhere(size_t bytes) const;
  /// Takes `block` out of the lists and cuts it to `bytes` where what is left is at least `least_rest`.
  void take(Block* block, size_t bytes, size_t least_rest);
  /// Joins a block, whose uses are over, with its free neighbours of the same stream, and lists it.
  void give_back(Block* block);
  /// Gives the free blocks of a slab to the slab's stream and joins them: only while the device has no work.
  void rejoin(Slab* slab);
  /// The slabs that are one free block.
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
