// csrc/runtime/memory/memory_holders.cpp: see memory_holders.h.
#include "csrc/runtime/memory/memory_holders.h"

#include <algorithm>
#include <map>
#include <utility>

#include "csrc/runtime/memory/slab.h"

namespace ocl::runtime {
namespace {

// Number of purposes that an error names.
constexpr size_t kHoldersNamed = 4;
constexpr char kNoPurpose[] = "other tensors";

}  // namespace

std::vector<SegmentInfo> segments_of(const AddressRange& range) {
  std::vector<SegmentInfo> segments;
  range.for_each_slab([&](const Slab* slab) {
    SegmentInfo& segment = segments.emplace_back();
    segment.address = slab->address;
    segment.bytes = static_cast<int64_t>(slab->bytes);
    segment.stream = slab->stream;
    segment.small = slab->pool == kSmall;
    segment.site = slab->site;
    for (const auto& [offset, block] : slab->blocks) {
      const BlockState state = block->free             ? BlockState::kInactive
                               : block->requested == 0 ? BlockState::kAwaitingFree
                                                       : BlockState::kAllocated;
      segment.blocks.push_back({block->address(), static_cast<int64_t>(block->bytes), static_cast<int64_t>(block->requested),
                                state, block->purpose, block->site});
    }
  });
  return segments;
}

std::string largest_holders(const AddressRange& range) {
  struct Holder {
    int64_t bytes = 0, blocks = 0;
  };
  std::map<std::string, Holder> by_purpose;
  range.for_each_slab([&](const Slab* slab) {
    for (const auto& [offset, block] : slab->blocks) {
      if (block->free || block->requested == 0) continue;
      Holder& holder = by_purpose[block->purpose ? *block->purpose : kNoPurpose];
      holder.bytes += static_cast<int64_t>(block->bytes);
      ++holder.blocks;
    }
  });
  std::vector<std::pair<std::string, Holder>> rows(by_purpose.begin(), by_purpose.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  std::string text;
  for (size_t i = 0; i < std::min(rows.size(), kHoldersNamed); ++i) {
    const auto& [purpose, holder] = rows[i];
    text += (i ? "; " : "") + size_text(holder.bytes) + " in " + std::to_string(holder.blocks) +
            (holder.blocks == 1 ? " block: " : " blocks: ") + purpose;
  }
  return text.empty() ? "no tensor" : text;
}

std::string out_of_memory_text(const DeviceInfo& device, size_t requested, const MemoryStats& stats, const std::string& problem,
                               const AddressRange& range) {
  return "out of memory on " + device.describe() + ": tried to allocate " + size_text(static_cast<int64_t>(requested)) + "; " +
         size_text(stats.allocated_bytes.all().current) + " are allocated, " + size_text(stats.reserved_bytes.all().current) +
         " reserved, of " + size_text(device.caps.global_bytes) + " in total" +
         (device.caps.address_bits < 64 ? ", as its addresses have " + std::to_string(device.caps.address_bits) + " bits"
                                        : "") +
         " (" + problem + ")\n  largest holders: " + largest_holders(range) +
         "\n  do: use a smaller batch, delete tensors you no longer need, or wrap inference in torch.no_grad(); " +
         "torch.ocl.memory_snapshot() lists every block";
}

}  // namespace ocl::runtime
