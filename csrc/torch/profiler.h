// csrc/torch/profiler.h: makes torch's profilers know our devices.
#pragma once

namespace ocl::aten {

/// Registers the devices with torch.profiler, if torch was built with Kineto. Sessions that ask for the device record its
/// commands.
void register_profiler();
/// Registers the devices with torch.autograd.profiler.profile(use_kineto=False), which puts an event before and after each op.
void register_profiler_markers();

}  // namespace ocl::aten
