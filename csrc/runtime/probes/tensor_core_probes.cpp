// csrc/runtime/probes/tensor_core_probes.cpp: builds, runs and checks one small program for wgmma and one for mma.
#include "csrc/runtime/probes/tensor_core_probes.h"

#include <algorithm>
#include <vector>

#include "csrc/runtime/opencl/hidden_instructions.h"
#include "csrc/runtime/probes/probe_program.h"

namespace ocl::runtime {
namespace {

/// A is all threes and B all ones. The depth is 8, so every element of the product is 8 * 3. B fills the whole 128-byte
/// swizzle.
constexpr char kWarpgroupProbe[] = R"CL(
__kernel __attribute__((reqd_work_group_size(128, 1, 1))) void k(__global float* out) {
  __local float b[8 * 32] __attribute__((aligned(1024)));
  const int t = get_local_id(0);
  b[t] = b[t + 128] = 1.0f;
  uint a[4];
  for (int i = 0; i < 4; ++i) a[i] = as_uint(3.0f);
  float d[4] = {1.0f, 1.0f, 1.0f, 1.0f};
  asm volatile("fence.proxy.async;" ::: "memory");
  barrier(CLK_LOCAL_MEM_FENCE);
  const ulong at = ((ulong)1 << 16) | ((ulong)64 << 32) | ((ulong)1 << 62) | (((uint)(size_t)b & 0x3FFFF) >> 4);
  asm volatile("//@wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("//@{ .reg .pred p; setp.ne.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, p, 1, 1; }"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(at));
  asm volatile("//@wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("//@wgmma.wait_group.sync.aligned 0;" ::: "memory");
  asm volatile("" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]));
  for (int i = 0; i < 4; ++i) out[4 * t + i] = d[i];
})CL";

/// A is all threes and B all ones. The depth is 8 and the sums begin with 1, so every element is 8 * 3 + 1. With HALVES in
/// fp16, otherwise in TF32.
constexpr char kWarpProbe[] = R"CL(
#ifdef HALVES
#define THREE 0x42004200u
#define ONE 0x3c003c00u
#define MULTIPLY asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(b))
#else
#define THREE as_uint(3.0f)
#define ONE as_uint(1.0f)
#define MULTIPLY asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %8}, {%0, %1, %2, %3};" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b))
#endif
__kernel __attribute__((reqd_work_group_size(32, 1, 1))) void k(__global float* out) {
  __local uint rows[32 * 4] __attribute__((aligned(16)));
  const int t = get_local_id(0);
  for (int i = 0; i < 4; ++i) rows[4 * t + i] = THREE;
  barrier(CLK_LOCAL_MEM_FENCE);
  uint a[4];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"((uint)(size_t)(rows + 4 * t)) : "memory");
  const uint b = ONE;
  float d[4] = {1.0f, 1.0f, 1.0f, 1.0f};
  MULTIPLY;
  for (int i = 0; i < 4; ++i) out[4 * t + i] = d[i];
})CL";

/// Runs the probe with one work-group. Returns true if each work-item stores `expected` four times.
bool gives(cl_context context, cl_device_id device, cl_program program, size_t items, float expected) {
  const std::vector<float> values = run_probe(context, device, program, items, 4 * items);
  return !values.empty() && std::all_of(values.begin(), values.end(), [&](float value) { return value == expected; });
}

}  // namespace

bool probe_wgmma(cl_context context, cl_device_id device, const char* options) {
  const ProgramHandle covered = build_probe_program(context, device, kWarpgroupProbe, options);
  if (covered.get() == nullptr) return false;
  cl_int status = CL_SUCCESS;
  const ProgramHandle program = uncover_instructions(context, device, covered.get(), options, &status);
  return status == CL_SUCCESS && gives(context, device, program.get(), 128, 24.0f);
}

bool probe_mma(cl_context context, cl_device_id device, const char* options) {
  const ProgramHandle program = build_probe_program(context, device, kWarpProbe, options);
  return program.get() != nullptr && gives(context, device, program.get(), 32, 25.0f);
}

}  // namespace ocl::runtime
