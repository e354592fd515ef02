// csrc/runtime/batches.h: which kernels are built as one program.
#pragma once

#include <string>
#include <vector>

#include "csrc/runtime/program.h"

namespace ocl::runtime {

using Indices = std::vector<size_t>;  // into the texts of one call

/// Groups the texts `pending` into programs of at most `most_per_program` kernels: equal preludes and distinct kernel names
/// share one (kKernelMarker).
std::vector<Indices> make_batches(const std::vector<KernelText>& texts, const Indices& pending, size_t most_per_program);
/// The program text of a batch.
std::string batch_source(const std::vector<KernelText>& texts, const Indices& batch);

}  // namespace ocl::runtime
