// csrc/schedule/families/winograd/filters.h: sizes of Winograd's convolutions of 3x3 filters.
#pragma once

#include "csrc/schedule/families/tiles.h"

namespace ocl::schedule {

/// Number of parts of this size that cover a whole.
inline int64_t parts(int64_t whole, int64_t part) { return (whole + part - 1) / part; }
/// The channels of the operand with pixels that the kernel reads, and of the output; for a weight gradient, of x and of dy.
std::pair<ir::IndexExpr, ir::IndexExpr> winograd_channels(const ir::Node& node);
/// Number of patches of 2 x `columns` outputs.
ir::IndexExpr winograd_patches(const ir::Node& node, int columns = 2);
int64_t winograd_weight_patches(const ir::Node& node);
/// Work-groups of kernels/winograd/group.cl: 32 patches each, by this many channels.
ir::IndexExpr winograd_groups(const ir::Node& node, int channels);
/// Output channels of a work-group on a device: half as many if a work-item has few registers.
int winograd_group_channels(const Caps& caps);

}  // namespace ocl::schedule
