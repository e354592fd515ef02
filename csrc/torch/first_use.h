// csrc/torch/first_use.h: a function that runs once, before the first memory of a device is handed out.
#pragma once

#include <functional>

namespace ocl::aten {

/// Sets the function. It may take the GIL. A thread that allocates meanwhile does not wait for it.
void set_before_first_use(std::function<void()> action);

/// Runs the function if this is the first call of the process.
void note_use();

}  // namespace ocl::aten
