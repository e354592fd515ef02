// csrc/kernels/caps.h: what a device can do, as a plain struct. runtime/probes/caps.cpp fills it; schedule and codegen read
// it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "csrc/kernels/kernels.h"
#include "csrc/kernels/matrix_instructions.h"

namespace ocl {

/// Capabilities of one device, probed once. The compiler decides by capabilities, never by a vendor's name.
struct Caps {
  bool is_cpu = true;               // Use item kernels (true) or group kernels (false), see docs/architecture.md.
  int vector_floats = 16;           // Native vector width in floats: 4, 8 or 16. Decides the size of register tiles.
  int units = 2;                    // Number of compute units: what runs work-groups and has their local memory.
  int64_t local_bytes = 32 * 1024;  // Bytes of __local memory that a work-group can use.
  bool local_is_global = false;     // GPU: local memory is memory like any other, so copying into it gains nothing.
  int max_group_size = 4096;        // Largest number of work-items in a work-group.
  // GPU: registers of 32 bits of a work-item with which a compute unit still hides latency: two waves for each SIMD unit.
  int item_registers = 128;
  // GPU: if not 0, group kernels ask for threads of this many work-items (cl_intel_required_subgroup_size). It is the fewest
  // that the device has, so that each has the most registers.
  int thread_items = 0;
  int64_t global_bytes = 1LL << 33;     // Bytes of device memory.
  int64_t max_alloc_bytes = 1LL << 31;  // Bytes of the largest single allocation.
  int address_bits = 64;                // Bits of an address on the device. Both sizes above respect them.
  bool unrestricted_buffers = false;    // Allocations above CL_DEVICE_MAX_MEM_ALLOC_SIZE need a flag (SlabMemory).
  // GPU: an output of up to this many bytes is still in the caches when the next kernel reads it.
  int64_t kept_output_bytes = 48 << 20;
  int base_align_bytes = 128;  // Alignment of a buffer's base address in bytes.
  bool unified = true;         // Host and device share memory.
  bool fp64 = true;            // The device computes in double precision.
  // A kernel may use -x after a barrier. Intel's CPU runtime (2026.22) takes the -x of another work-item.
  bool keeps_negations = true;
  // max(max(a, -b), c) of signed integers is right. The assembler of CUDA 13.0 makes one instruction of it for compute
  // capability 9.0 and 10.0, and loses the sign of b. That of CUDA 13.5 does not.
  bool extremes_keep_signs = true;
  bool fp16_convert = true;  // vload_half and vstore_half are fast and need only the alignment of one element.
  bool prefetch = true;      // CPU: Clang's __builtin_prefetch becomes an instruction.
  // The kernels of kernels/kernels.def that the device may use. A tensor core kernel is in the set if its instructions
  // exist; csrc/checks tests the kernel itself before a plan uses it.
  KernelSet kernels = portable_kernels();
  // What the kernels of the level subgroup_matrix multiply with.
  MatrixInstructions matrix = MatrixInstructions::kNone;
  bool queue_priorities = false;    // Queues can have a high or low priority (cl_khr_priority_hints).
  bool queue_times = true;          // The events of commands have times (CL_QUEUE_PROFILING_ENABLE).
  bool marker_times = true;         // The event of a marker holds the time at which the device reached the marker.
  int max_kernel_arg_bytes = 4096;  // Largest total size of a kernel's arguments in bytes.

  /// Sets address_bits, and limits sizes to what such addresses reach, less a MiB for the driver's own use.
  void limit_addresses(int bits) {
    address_bits = bits;
    if (bits >= 64) return;
    const int64_t most = (int64_t{1} << bits) - (1 << 20);
    global_bytes = std::min(global_bytes, most);
    max_alloc_bytes = std::min(max_alloc_bytes, most);
  }
};

}  // namespace ocl
