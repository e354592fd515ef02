// csrc/runtime/memory_holders.h: what the slabs of a device are used for.
#pragma once

#include <string>
#include <vector>

#include "csrc/runtime/address_range.h"
#include "csrc/runtime/memory_history.h"

namespace ocl::runtime {

std::vector<SegmentInfo> segments_of(const AddressRange& range);

/// Returns the purposes that hold most memory, such as "1.20 GiB in 24 blocks: results of forward_0; 300.00 MiB in 161 blocks:
/// other tensors".
std::string largest_holders(const AddressRange& range);

}  // namespace ocl::runtime
