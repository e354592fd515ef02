// csrc/support/caps.h: what a device can do, as a plain struct. Filled by runtime/caps.cpp; read by schedule and codegen.
#pragma once

#include <cstdint>
#include <string>

namespace ocl {

/// Capabilities of one device, probed once. Nothing above the probes asks for a vendor's name. Those of matrix units say that
/// the instructions exist; exec/unit_check.h multiplies with them before a plan uses them.
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
  bool wgmma = false;       // fp32 on warpgroup matrix units by inline instructions (kernels/wgmma.cl); built and run to see
  bool wgmma_tf32 = false;  // the same where TF32 is allowed
  bool wgmma_bf16 = false, wgmma_f16 = false;                      // operands of 16 bits
  bool wgmma_wide_bf16 = false, wgmma_wide_f16 = false;            // and tiles of 256 columns
  bool wgmma_packed = false, wgmma_packed_tf32 = false;            // operands packed in blocks (kernels/gemm_packed_wgmma.cl)
  bool wgmma_packed_bf16 = false, wgmma_packed_f16 = false;        // and of 16 bits
  bool wgmma_attention = false, wgmma_attention_tf32 = false;      // attention of fp32 (kernels/attention_wgmma.cl)
  bool wgmma_attention_bf16 = false, wgmma_attention_f16 = false;  // and of 16 bits
  bool wgmma_attention_gradient = false, wgmma_attention_gradient_tf32 = false;  // its gradients
  bool wgmma_attention_gradient_bf16 = false, wgmma_attention_gradient_f16 = false;
  bool conv_statistics = true;  // convolutions may leave their channels' statistics: those of CPUs, and, if right,
  bool wgmma_statistics = false, wgmma_statistics_tf32 = false;  // those on matrix units
  bool wgmma_statistics_bf16 = false, wgmma_statistics_f16 = false;
  bool mma = false;       // fp32 on matrix units of a warp by inline instructions (kernels/mma.cl), where wgmma is not
  bool mma_tf32 = false;  // the same where TF32 is allowed
  bool mma_bf16 = false, mma_f16 = false;                    // operands of 16 bits
  bool mma_statistics = false, mma_statistics_tf32 = false;  // statistics as with wgmma
  bool mma_statistics_bf16 = false, mma_statistics_f16 = false;
  bool mma_attention = false, mma_attention_tf32 = false;                    // attention (kernels/attention_mma.cl)
  bool mma_attention_bf16 = false, mma_attention_f16 = false;                // and of 16 bits
  bool mma_attention_gradient = false, mma_attention_gradient_tf32 = false;  // its gradients
  bool mma_attention_gradient_bf16 = false, mma_attention_gradient_f16 = false;
  bool queue_priorities = false;    // queues can be urgent or patient (cl_khr_priority_hints)
  bool marker_times = true;         // a marker's event tells when the device came to it
  int max_kernel_arg_bytes = 4096;  // limit on the bytes of a kernel's arguments
};

}  // namespace ocl
