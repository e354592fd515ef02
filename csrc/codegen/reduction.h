// csrc/codegen/reduction.h: prints nests in which several lanes or items reduce one outer element together.
#pragma once

#include "csrc/codegen/nest.h"

namespace ocl::codegen {

/// Vector lanes (CPU) or the items of a work-group (GPU) share the reduction of one outer element.
Grid write_rows_cpu(Nest& nest);
Grid write_rows_gpu(Nest& nest, std::array<size_t, 3>* local);

}  // namespace ocl::codegen
