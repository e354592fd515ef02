// csrc/support/caps.h: what a device can do, as a plain struct. Filled by runtime/caps.cpp; read by schedule and codegen.
#pragma once

#include <cstdint>
#include <string>

#include "csrc/support/kernels.h"

namespace ocl {

/// Capabilities of one device, probed once. Nothing above the probes asks for a vendor's name.
struct Caps {
  bool is_cpu = true;                       // work-item per tile kernels (true) or work-group per tile kernels (false)
  int vector_floats = 16;                   // native vector width in floats: 4, 8 or 16; CPU register tiles are sized by it
  int units = 2;                            // compute units (cores of a CPU)
  int64_t local_bytes = 32 * 1024;          // usable __local bytes per work-group
  bool local_real = false;                  // __local is faster than global memory
  int max_group_size = 4096;                // most work-items in a group
  int64_t global_bytes = 1LL << 33;         // device memory
  int64_t max_alloc_bytes = 1LL << 31;      // largest single allocation
  double memory_bytes_per_second = 3.5e12;  // a copy's rate. With launch_seconds for choices between kernels: an H200's, as are
  double launch_seconds = 4e-6;             // the tensor cores' rates that they are weighed against; ratios carry over
  int64_t kept_output_bytes = 48 << 20;     // of a GPU: what a kernel wrote, up to this, the next reads from caches
  int base_align_bytes = 128;               // alignment of a buffer's base address
  bool unified = true;                      // host and device share memory
  bool fp64 = true;                         // double arithmetic
  bool fp16_arith = false;                  // half arithmetic; storage as half always works through vload_half
  bool fp16_convert = true;                 // vload_half and vstore_half are quick, and take any element's address
  bool prefetch = true;                     // of a CPU: Clang's __builtin_prefetch is an instruction
  int subgroup_size = 0;                    // 0: no subgroup operations
  KernelSet kernels = portable_kernels();   // of kernels/kernels.def. Those on tensor cores: that the instructions exist;
                                            // csrc/checks multiplies with them before a plan uses them
  bool queue_priorities = false;            // queues can be urgent or patient (cl_khr_priority_hints)
  bool marker_times = true;                 // a marker's event tells when the device came to it
  int max_kernel_arg_bytes = 4096;          // limit on the bytes of a kernel's arguments
};

}  // namespace ocl
