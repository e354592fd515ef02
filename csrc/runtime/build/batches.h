// csrc/runtime/build/batches.h: decides which kernels are built as one program.
#pragma once

#include <string>
#include <vector>

#include "csrc/runtime/opencl/kernel_text.h"

namespace ocl::runtime {

using Indices = std::vector<size_t>;  // Indices into the texts of one call.

/// Groups the texts with indices `pending` into programs of at most `most_per_program` kernels. The kernels of a
/// program have equal preludes (see kKernelMarker) and different names.
std::vector<Indices> make_batches(const std::vector<KernelText>& texts, const Indices& pending, size_t most_per_program);
/// Returns the program text of a batch.
std::string batch_source(const std::vector<KernelText>& texts, const Indices& batch);

}  // namespace ocl::runtime
