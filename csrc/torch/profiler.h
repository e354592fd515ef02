// csrc/torch/profiler.h: tells torch's profilers of our devices.
#pragma once

namespace ocl::aten {

/// For torch.profiler, where torch was built with Kineto. Sessions that ask for the device record its commands.
void register_profiler();
/// For torch.autograd.profiler.profile(use_kineto=False), which times ops by events around them.
void register_profiler_markers();

}  // namespace ocl::aten
