// csrc/codegen/pointwise.h: prints nests whose outer elements are independent.
#pragma once

#include "csrc/codegen/nest.h"

namespace ocl::codegen {

/// Each lane computes outer elements on its own (kPointwise, kSequential). Vectors run along the innermost loop.
Grid write_elements_cpu(Nest& nest);
Grid write_elements_gpu(Nest& nest);

}  // namespace ocl::codegen
