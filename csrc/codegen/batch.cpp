// csrc/codegen/batch.cpp: stub
#include "csrc/codegen/batch.h"
#include "csrc/support/error.h"
namespace ocl::codegen {
KernelSource generate_batch(const schedule::Schedule&, const schedule::Group&, const Caps&) { fail(ErrorKind::kInternal, "batch"); }
}
