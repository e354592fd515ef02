// csrc/runtime/record/memory_stats.h: the counters of an allocator.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace ocl::runtime {

/// A quantity that goes up and down. `peak`, `allocated` and `freed` count from their last reset.
struct Stat {
  int64_t current = 0, peak = 0, allocated = 0, freed = 0;
  void increase(int64_t amount) {
    current += amount;
    peak = std::max(peak, current);
    allocated += amount;
  }
  void decrease(int64_t amount) {
    current -= amount;
    freed += amount;
  }
};

/// Three values: for all blocks, for blocks of small slabs, and for blocks of other slabs.
struct PooledStat {
  std::array<Stat, 3> of{};
  const Stat& all() const { return of[0]; }
  void increase(bool small, int64_t amount) {
    of[0].increase(amount);
    of[small ? 1 : 2].increase(amount);
  }
  void decrease(bool small, int64_t amount) {
    of[0].decrease(amount);
    of[small ? 1 : 2].decrease(amount);
  }
};

/// Statistics for torch.ocl.memory_stats. Sizes are in bytes.
struct MemoryStats {
  // Live blocks and their bytes. requested_bytes does not count padding.
  PooledStat blocks, allocated_bytes, requested_bytes;
  // Live blocks, and freed blocks that a stream still uses.
  PooledStat active_blocks, active_bytes;
  PooledStat slabs, reserved_bytes;                        // Slabs that were allocated from the device.
  PooledStat inactive_split_blocks, inactive_split_bytes;  // Free blocks in slabs that also have live blocks.
  // retries: allocations for which cached memory was freed. failures: allocations that failed even so.
  int64_t retries = 0, failures = 0;
  // slab_allocations, slab_frees: how often memory was requested from and given back to the driver. waits: waits for all
  // streams of the device.
  int64_t slab_allocations = 0, slab_frees = 0, waits = 0;

  template <class Function>
  void for_each_stat(Function function) {
    for (PooledStat* pooled : {&blocks, &allocated_bytes, &requested_bytes, &active_blocks, &active_bytes, &slabs,
                               &reserved_bytes, &inactive_split_blocks, &inactive_split_bytes})
      for (Stat& stat : pooled->of) function(stat);
  }
  void reset_peaks() {
    for_each_stat([](Stat& stat) { stat.peak = stat.current; });
  }
  void reset_accumulated() {
    for_each_stat([](Stat& stat) { stat.allocated = stat.freed = 0; });
    retries = failures = slab_allocations = slab_frees = waits = 0;
  }
};

}  // namespace ocl::runtime
