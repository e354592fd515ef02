// csrc/torch/refused_layouts.h: refuses tensors that ocl cannot hold.
#pragma once

#include <string>

namespace ocl::aten {

/// Throws UnsupportedError: the op `op` needs nested tensors with strided layout.
[[noreturn]] void refuse_nested(const std::string& op);

}  // namespace ocl::aten
