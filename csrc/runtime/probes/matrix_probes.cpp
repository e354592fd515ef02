// csrc/runtime/probes/matrix_probes.cpp: one small program for each matrix instruction of a subgroup and each type.
#include "csrc/runtime/probes/matrix_probes.h"

#include <algorithm>
#include <string>

#include "csrc/runtime/probes/probe_program.h"

namespace ocl::runtime {
namespace {

/// The compiler's macros are asked first: for an instruction that the device lacks, LLVM may end the process instead of
/// reporting an error. Multiplies A [m][k] = (3m + 5k) % 7 - 3 by B [k][n] = (2k + 3n) % 5 - 2. Each lane stores its elements
/// of the product. The macros are those of kernels/tensor_core/subgroup_matrix.cl, which says which lane has which elements.
constexpr char kProbe[] = R"CL(
#if defined(MATRIX_WMMA) && MATRIX_WMMA == 11 && defined(__GFX11__)
#elif defined(MATRIX_WMMA) && MATRIX_WMMA == 12 && (defined(__gfx1200__) || defined(__gfx1201__))
#elif defined(MATRIX_MFMA) && MATRIX_MFMA == 2 && defined(__gfx908__)
#elif defined(MATRIX_MFMA) && MATRIX_MFMA == 4 && (defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__))
#elif !defined(MATRIX_DPAS)
#error "the device has other instructions"
#endif
#if defined(IN_HALF) && !defined(MATRIX_DPAS)
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
#if defined(IN_FLOAT)
#define OPERAND float
#define PUT(to, i, x) to[i] = (float)(x)
#elif defined(IN_BF16)
#define OPERAND ushort
#define PUT(to, i, x) to[i] = (ushort)(as_uint((float)(x)) >> 16)
#else
#define OPERAND ushort
#define PUT(to, i, x) vstore_half((float)(x), i, (half*)to)
#endif
#define A(m, k) ((3 * (m) + 5 * (k)) % 7 - 3)
#define B(k, n) ((2 * (k) + 3 * (n)) % 5 - 2)
#if defined(MATRIX_DPAS)
#if defined(IN_BF16)
#define DPAS intel_sub_group_bf16_bf16_matrix_mad_k16
#else
#define DPAS intel_sub_group_f16_f16_matrix_mad_k16
#endif
#if defined(IN_FLOAT)
float8 __attribute__((overloadable)) intel_sub_group_tf32_tf32_matrix_mad_k8(float4 a, float8 b, float8 c);
#define MULTIPLY intel_sub_group_tf32_tf32_matrix_mad_k8(vload4(0, a), vload8(0, b), c)
#define A_COUNT 4
#define A_OF(i) A(2 * i + l / 8, l % 8)
#define B_COUNT 8
#elif MATRIX_DPAS == 8
float8 __attribute__((overloadable)) DPAS(int8 a, int8 b, float8 c);
#define MULTIPLY DPAS(as_int8(vload16(0, a)), as_int8(vload16(0, b)), c)
#define A_COUNT 16
#define A_OF(i) A(i / 2, 2 * l + i % 2)
#else
float8 __attribute__((overloadable)) DPAS(short8 a, int8 b, float8 c);
#define MULTIPLY DPAS(as_short8(vload8(0, a)), as_int8(vload16(0, b)), c)
#define A_COUNT 8
#define A_OF(i) A(i, l)
#endif
#ifndef B_COUNT
#define B_COUNT 16
#endif
#define B_OF(i) B(i, l)
#define LANES MATRIX_DPAS
#define SUBGROUP __attribute__((intel_reqd_sub_group_size(MATRIX_DPAS)))
#define RESULT float8
#elif defined(MATRIX_WMMA)
#define A_COUNT (MATRIX_WMMA == 11 ? 16 : 8)
#define FIRST (MATRIX_WMMA == 11 ? 0 : l / 16 * 8)
#define LANES 32
#define RESULT float8
#if MATRIX_WMMA == 11 && defined(IN_BF16)
#define MULTIPLY __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(as_short16(vload16(0, a)), as_short16(vload16(0, b)), c)
#elif MATRIX_WMMA == 11
#define MULTIPLY __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(as_half16(vload16(0, a)), as_half16(vload16(0, b)), c)
#elif defined(IN_BF16)
#define MULTIPLY __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(as_short8(vload8(0, a)), as_short8(vload8(0, b)), c)
#else
#define MULTIPLY __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(as_half8(vload8(0, a)), as_half8(vload8(0, b)), c)
#endif
#else
#define LANES 64
#define RESULT float16
#if defined(IN_FLOAT)
#define A_COUNT 1
#define MULTIPLY __builtin_amdgcn_mfma_f32_32x32x2f32(a[0], b[0], c, 0, 0, 0)
#elif defined(IN_HALF)
#define A_COUNT 4
#define MULTIPLY __builtin_amdgcn_mfma_f32_32x32x8f16(as_half4(vload4(0, a)), as_half4(vload4(0, b)), c, 0, 0, 0)
#elif MATRIX_MFMA == 4
#define A_COUNT 4
#define MULTIPLY __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(as_short4(vload4(0, a)), as_short4(vload4(0, b)), c, 0, 0, 0)
#else
#define A_COUNT 2
#define MULTIPLY __builtin_amdgcn_mfma_f32_32x32x4bf16(as_short2(vload2(0, a)), as_short2(vload2(0, b)), c, 0, 0, 0)
#endif
#define FIRST (l / 32 * A_COUNT)
#endif
#ifndef A_OF
#define A_OF(i) A(l % (LANES / 2), FIRST + i)
#define B_OF(i) B(FIRST + i, l % (LANES / 2))
#define B_COUNT A_COUNT
#define SUBGROUP
#endif
__kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) SUBGROUP void k(__global float* out) {
  const int l = get_local_id(0);
  OPERAND a[A_COUNT], b[B_COUNT];
  for (int i = 0; i < A_COUNT; ++i) PUT(a, i, A_OF(i));
  for (int i = 0; i < B_COUNT; ++i) PUT(b, i, B_OF(i));
  RESULT c = (RESULT)(1.0f);
  c = MULTIPLY;
  for (int i = 0; i < sizeof(RESULT) / 4; ++i) out[l * (sizeof(RESULT) / 4) + i] = ((const float*)&c)[i];
})CL";

/// Returns what lane `lane` stores as its element i, for an instruction that multiplies `depth` elements.
float expected(const MatrixRow& row, int depth, int lane, int i) {
  int m = i, n = lane;
  if (row.id == MatrixInstructions::kWmma11) m = 2 * i + lane / 16, n = lane % 16;
  if (row.id == MatrixInstructions::kWmma12) m = 8 * (lane / 16) + i, n = lane % 16;
  if (row.lanes == 64) m = 8 * (i / 4) + 4 * (lane / 32) + i % 4, n = lane % 32;
  float sum = 1;
  for (int k = 0; k < depth; ++k) sum += static_cast<float>(((3 * m + 5 * k) % 7 - 3) * ((2 * k + 3 * n) % 5 - 2));
  return sum;
}

bool lists(const std::string& extensions, const std::string& name) {
  return (" " + extensions + " ").find(" " + name + " ") != std::string::npos;
}

/// Returns the lanes of a subgroup that multiplies by DPAS, 0 if the device does not list it. A device that lacks it must not
/// be asked by a program: Intel's compiler accepts the functions for every GPU, and writes an invalid instruction.
int lanes_of_dpas(cl_device_id device, const std::string& extensions) {
  if (!lists(extensions, "cl_intel_subgroup_matrix_multiply_accumulate")) return 0;
  constexpr cl_device_info kSubgroupSizes = 0x4108;  // CL_DEVICE_SUB_GROUP_SIZES_INTEL, of cl_intel_required_subgroup_size.
  std::vector<size_t> sizes(16);
  size_t bytes = 0;
  if (clGetDeviceInfo(device, kSubgroupSizes, sizes.size() * sizeof(size_t), sizes.data(), &bytes) != CL_SUCCESS) return 0;
  sizes.resize(bytes / sizeof(size_t));
  return sizes.empty() ? 0 : static_cast<int>(*std::min_element(sizes.begin(), sizes.end()));
}

bool multiplies(cl_context context, cl_device_id device, const MatrixRow& row, KernelType type) {
  const bool floats = type == KernelType::kFp32, bf16 = type == KernelType::kBf16;
  const std::string options = std::string("-D ") + row.macro + "=" + std::to_string(row.value) +
                              (floats ? " -D IN_FLOAT"
                               : bf16 ? " -D IN_BF16"
                                      : " -D IN_HALF");
  const ProgramHandle program = build_probe_program(context, device, kProbe, options.c_str());
  if (program.get() == nullptr) return false;
  const int each = row.lanes == 64 ? 16 : 8;
  const int depth = row.lanes != 64 ? (floats ? 8 : 16) : floats ? 2 : bf16 ? 2 * row.value : 8;
  const auto items = static_cast<size_t>(row.lanes);
  const std::vector<float> values = run_probe(context, device, program.get(), items, items * static_cast<size_t>(each));
  for (size_t at = 0; at < values.size(); ++at)
    if (values[at] != expected(row, depth, static_cast<int>(at) / each, static_cast<int>(at) % each)) return false;
  return !values.empty();
}

}  // namespace

void probe_matrix_instructions(cl_context context, cl_device_id device, const std::string& extensions, Caps& caps) {
  const int dpas_lanes = lanes_of_dpas(device, extensions);
  for (const MatrixRow& row : kMatrixRows) {
    if (row.id == MatrixInstructions::kMma8) continue;  // probe_mma() finds it.
    const bool dpas = row.id == MatrixInstructions::kDpas8 || row.id == MatrixInstructions::kDpas16;
    if (dpas ? row.lanes != dpas_lanes : dpas_lanes != 0) continue;
    if (!multiplies(context, device, row, KernelType::kFp16)) continue;
    caps.matrix = row.id;
    const bool floats = row.floats && (!dpas || lists(extensions, "cl_intel_subgroup_matrix_multiply_accumulate_tf32"));
    for (const KernelType type : {KernelType::kFp16, KernelType::kBf16, KernelType::kFp32})
      if (type == KernelType::kFp16 || ((type == KernelType::kBf16 || floats) && multiplies(context, device, row, type)))
        caps.kernels.add(std::string(name(KernelLevel::k_subgroup_matrix)) + ":" + name(type));
    return;
  }
}

}  // namespace ocl::runtime
