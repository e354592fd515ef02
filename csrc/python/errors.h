// csrc/python/errors.h: from an ocl::Error to the exception class a user meets.
#pragma once

#include <pybind11/pybind11.h>

#include "csrc/support/error.h"

namespace ocl::python {

/// Sets Python's error indicator to the class of `error`'s kind. The GIL is held.
void set_python_error(const Error& error);

}  // namespace ocl::python
