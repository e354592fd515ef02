// csrc/torch/errors.h: an ocl::Error on its way into torch: out of memory becomes torch.OutOfMemoryError, the rest the class of
// its kind in torch_ocl_compile/errors.py.
#pragma once

#include <utility>

#include "csrc/support/error.h"

namespace ocl::aten {

/// Sets Python's error indicator to the class of `error`'s kind. The GIL is held.
void set_python_error(const Error& error);
/// Rethrows `error` as what torch hands to Python. Takes the GIL for a moment.
[[noreturn]] void rethrow(const Error& error);

/// Runs `body`. Everything torch calls that can meet the runtime goes through this.
template <class Body>
decltype(auto) at_boundary(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const Error& error) {
    rethrow(error);
  }
}

}  // namespace ocl::aten
