// csrc/runtime/memory/memory_holders.h: what the slabs of a device are used for.
#pragma once

#include <string>
#include <vector>

#include "csrc/runtime/memory/address_range.h"
#include "csrc/runtime/opencl/device_info.h"
#include "csrc/runtime/record/memory_history.h"
#include "csrc/runtime/record/memory_stats.h"

namespace ocl::runtime {

std::vector<SegmentInfo> segments_of(const AddressRange& range);

/// Returns the purposes that hold most memory, such as "1.20 GiB in 24 blocks: results of forward_0; 300.00 MiB in 161 blocks:
/// other tensors".
std::string largest_holders(const AddressRange& range);

/// Returns the text of the error when `requested` bytes cannot be allocated because of `problem`.
std::string out_of_memory_text(const DeviceInfo& device, size_t requested, const MemoryStats& stats, const std::string& problem,
                               const AddressRange& range);

}  // namespace ocl::runtime
