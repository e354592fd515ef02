// csrc/torch/errors.cpp: see errors.h.
#include "csrc/torch/errors.h"

#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>

#include "csrc/python/errors.h"

namespace ocl::aten {

void rethrow(const Error& error) {
  if (error.kind() == ErrorKind::kOutOfMemory) TORCH_CHECK_WITH(OutOfMemoryError, false, error.what());
  pybind11::gil_scoped_acquire gil;
  python::set_python_error(error);
  python_error raised;
  raised.persist();
  throw raised;
}

}  // namespace ocl::aten
