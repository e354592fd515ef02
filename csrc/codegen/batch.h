// csrc/codegen/batch.h: several independent groups in one launch, each lane on its own.
#pragma once

#include "csrc/codegen/kernel_source.h"

namespace ocl::codegen {

/// A kBatch group: a flat grid in which each member owns a range of work-groups.
KernelSource generate_batch(const schedule::Schedule& schedule, const schedule::Group& group, const Caps& caps);

}  // namespace ocl::codegen
