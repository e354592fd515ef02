// csrc/support/caps.h: what a device can do, as a plain struct. Filled by runtime/caps.cpp; read by schedule and codegen.
#pragma once

#include <cstdint>
#include <string>

#include "csrc/support/kernels.h"

namespace ocl {

/// Capabilities of one device, probed once. The compiler asks for capabilities, never for a vendor's name.
struct Caps {
  bool is_cpu = true;                   // item kernels (true) or group kernels (false), see docs/architecture.md
  int vector_floats = 16;               // native vector width in floats: 4, 8 or 16; decides the size of register tiles
  int units = 2;                        // compute units (cores of a CPU)
  int64_t local_bytes = 32 * 1024;      // usable __local bytes per work-group
  bool local_real = false;              // __local is faster than global memory
  int max_group_size = 4096;            // most work-items in a group
  int64_t global_bytes = 1LL << 33;     // device memory
  int64_t max_alloc_bytes = 1LL << 31;  // largest single allocation
  // The rate of a copy, and the time of a launch. Cost models compare them with the rates of tensor cores. All are those of an
  // H200; their ratios hold on other devices too.
  double memory_bytes_per_second = 3.5e12;
  double launch_seconds = 4e-6;
  int64_t kept_output_bytes = 48 << 20;  // GPU: an output up to this size is still in caches when the next kernel reads it
  int base_align_bytes = 128;            // alignment of a buffer's base address
  bool unified = true;                   // host and device share memory
  bool fp64 = true;                      // double arithmetic
  bool fp16_arith = false;               // half arithmetic; storage as half always works through vload_half
  bool fp16_convert = true;              // vload_half and vstore_half are fast, and need only the alignment of an element
  bool prefetch = true;                  // CPU: Clang's __builtin_prefetch is an instruction
  int subgroup_size = 0;                 // 0: no subgroup operations
  // The kernels of kernels/kernels.def that the device may use. A tensor core kernel is in the set if its instructions exist;
  // csrc/checks tests the kernel itself before a plan uses it.
  KernelSet kernels = portable_kernels();
  bool queue_priorities = false;    // queues can have a high or low priority (cl_khr_priority_hints)
  bool marker_times = true;         // the event of a marker has the time when the device reached it
  int max_kernel_arg_bytes = 4096;  // limit on the bytes of a kernel's arguments
};

}  // namespace ocl
