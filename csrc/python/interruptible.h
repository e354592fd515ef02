// csrc/python/interruptible.h: long work in C++ that Ctrl+C ends at once.
#pragma once

#include <functional>

namespace ocl::python {

/// Does the work without the GIL. In the main thread, a signal whose handler raises ends the wait with that error, such as
/// KeyboardInterrupt. The work then goes on in its thread until it is done or the process ends, so it owns what it uses, and
/// nothing of Python.
void run_interruptibly(std::function<void()> work);

}  // namespace ocl::python
