// csrc/codegen/template_kernel.cpp: stub
#include "csrc/codegen/template_kernel.h"
#include "csrc/support/error.h"
namespace ocl::codegen {
KernelSource generate_template(const schedule::Schedule&, const schedule::Group&, const Caps&) { fail(ErrorKind::kInternal, "template"); }
}
