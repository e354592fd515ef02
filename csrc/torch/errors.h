// csrc/torch/errors.h: converts an ocl::Error to an exception of torch. Out of memory becomes torch.OutOfMemoryError.
// Every other kind becomes its class in torch_ocl_compile/errors.py.
#pragma once

#include <utility>

#include "csrc/support/error.h"

namespace ocl::aten {

/// Sets Python's error indicator to the class of `error`'s kind. The caller holds the GIL.
void set_python_error(const Error& error);
/// Throws the exception that torch passes on to Python. Takes the GIL for a moment.
[[noreturn]] void rethrow(const Error& error);

/// Runs `body` and converts its errors. Every function that torch calls and that may use the runtime does its work in such a
/// `body`.
template <class Body>
decltype(auto) at_boundary(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const Error& error) {
    rethrow(error);
  }
}

}  // namespace ocl::aten
