// csrc/runtime/probes/caps.cpp: fills Caps by queries and, on GPUs, by compiling small programs.
#include "csrc/runtime/probes/caps.h"

#include <algorithm>

#include "csrc/runtime/opencl/cl_bindings.h"
#include "csrc/runtime/probes/matrix_probes.h"
#include "csrc/runtime/probes/tensor_core_probes.h"
#include "csrc/support/os.h"
#include "csrc/support/processor.h"
#include "csrc/support/words.h"

namespace ocl::runtime {
namespace {

template <typename T>
T query(cl_device_id device, cl_device_info what, T otherwise) {
  T value = otherwise;
  return cl::Device(device, true).getInfo(what, &value) == CL_SUCCESS ? value : otherwise;
}

/// Builds `text`. Returns the preferred work-group size multiple of its kernel `k`, or 0 if it does not build.
int build_probe(cl_device_id device, cl_context context, const char* text, const char* options) {
  cl_int status = CL_SUCCESS;
  ProgramHandle program(clCreateProgramWithSource(context, 1, &text, nullptr, &status));
  if (status != CL_SUCCESS || clBuildProgram(program.get(), 1, &device, options, nullptr, nullptr) != CL_SUCCESS) return 0;
  KernelHandle kernel(clCreateKernel(program.get(), "k", &status));
  if (status != CL_SUCCESS) return 0;
  size_t multiple = 1;
  cl::Kernel(kernel.get(), true)
      .getWorkGroupInfo(cl::Device(device, true), CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, &multiple);
  return static_cast<int>(multiple);
}

/// Returns Caps::unrestricted_buffers. No extension tells, so a buffer and a program are made with what such buffers need. A
/// driver that takes a flag without a meaning, too, does not look at flags.
bool has_unrestricted_buffers(cl_device_id device, cl_context context) {
  constexpr cl_mem_flags kMeaningless = cl_mem_flags{1} << 62;
  const auto takes = [&](cl_mem_flags flag) {
    cl_int status = CL_SUCCESS;
    const MemHandle buffer(clCreateBuffer(context, CL_MEM_READ_WRITE | flag, 4096, nullptr, &status));
    return status == CL_SUCCESS;
  };
  return takes(kUnrestrictedSize) && !takes(kMeaningless) &&
         build_probe(device, context, "__kernel void k(__global float* p) { p[0] = 1.0f; }", kUnrestrictedOption) > 0;
}

/// Returns Caps::item_registers. NVIDIA's runtime tells the registers of a work-group; their number for an instruction is
/// at most 255. Elsewhere: a thread of a device with sizes of subgroups has 128 registers of a float for each of the fewest
/// work-items; some hold arguments and addresses. Intel's compiler keeps arrays of threads of 16 work-items in memory if they
/// are above half of these registers. 256 registers for one wave of 64 are what other devices have.
int item_registers(cl_device_id device, int thread_items) {
  constexpr cl_device_info kRegistersPerBlock = 0x4002;  // cl_ext.h lacks it on some systems.
  const auto told = static_cast<int>(query<cl_uint>(device, kRegistersPerBlock, 0) / 256);
  if (told > 0) return std::min(told, 255);
  return thread_items >= 16 ? 96 : thread_items > 0 ? 112 : 128;
}

/// Returns Caps::thread_items.
int thread_items(cl_device_id device, const std::string& extensions) {
  constexpr cl_device_info kSubgroupSizes = 0x4108;  // cl_ext.h lacks it on some systems.
  std::vector<size_t> sizes;
  if (!has_word(extensions, "cl_intel_required_subgroup_size") ||
      cl::Device(device, true).getInfo(kSubgroupSizes, &sizes) != CL_SUCCESS || sizes.empty())
    return 0;
  return static_cast<int>(*std::min_element(sizes.begin(), sizes.end()));
}

/// Returns Caps::units. CL_DEVICE_MAX_COMPUTE_UNITS counts them on most devices: NVIDIA's multiprocessors, AMD's compute units
/// (on RDNA pairs of them, which share local memory), Arm's and Qualcomm's cores. Where a device has subslices
/// (cl_intel_device_attribute_query), these have the local memory, and the number counts their execution units. Drivers before
/// that extension have cl_intel_required_subgroup_size, and 8 execution units in a subslice up to Gen11, whose work-groups have
/// up to 256 work-items, or 16 (compute-runtime: maxComputUnits = EUCount; maxWorkGroupSize of the threads of a subslice).
int compute_units(cl_device_id device, const std::string& extensions, int max_group_size) {
  constexpr cl_device_info kSlices = 0x4252, kSubSlicesOfSlice = 0x4253;  // cl_ext.h lacks them on some systems.
  const auto told = static_cast<int>(std::max<cl_uint>(query<cl_uint>(device, CL_DEVICE_MAX_COMPUTE_UNITS, 1), 1));
  if (has_word(extensions, "cl_intel_device_attribute_query"))
    if (const cl_uint found = query<cl_uint>(device, kSlices, 0) * query<cl_uint>(device, kSubSlicesOfSlice, 0); found > 0)
      return std::min(told, static_cast<int>(found));
  if (has_word(extensions, "cl_intel_required_subgroup_size")) return std::max(told / (max_group_size <= 256 ? 8 : 16), 1);
  return told;
}

}  // namespace

std::string device_text(cl_device_id device, cl_device_info what) {
  std::string text;
  if (cl::Device(device, true).getInfo(what, &text) != CL_SUCCESS) return "";
  text = text.c_str();
  const size_t begin = text.find_first_not_of(' ');  // Some drivers pad their names with blanks.
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

std::string platform_text(cl_platform_id platform, cl_platform_info what) {
  std::string text;
  return cl::Platform(platform).getInfo(what, &text) == CL_SUCCESS ? text.c_str() : "";
}

Caps probe_caps(cl_device_id device, cl_context context) {
  Caps caps;
  const std::string extensions = device_text(device, CL_DEVICE_EXTENSIONS);
  caps.is_cpu = (query<cl_device_type>(device, CL_DEVICE_TYPE, 0) & CL_DEVICE_TYPE_CPU) != 0;
  caps.units = static_cast<int>(std::max<cl_uint>(query<cl_uint>(device, CL_DEVICE_MAX_COMPUTE_UNITS, 1), 1));
  caps.local_bytes = static_cast<int64_t>(query<cl_ulong>(device, CL_DEVICE_LOCAL_MEM_SIZE, 32 * 1024));
  caps.max_group_size =
      static_cast<int>(std::clamp<size_t>(query<size_t>(device, CL_DEVICE_MAX_WORK_GROUP_SIZE, 1), 1, 1 << 20));
  caps.global_bytes = static_cast<int64_t>(query<cl_ulong>(device, CL_DEVICE_GLOBAL_MEM_SIZE, 1 << 30));
  caps.max_alloc_bytes = static_cast<int64_t>(query<cl_ulong>(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, 1 << 28));
  caps.limit_addresses(static_cast<int>(query<cl_uint>(device, CL_DEVICE_ADDRESS_BITS, 64)));
  // Take at least 128 bytes, enough for a cache line of any CPU and for the widest vector, even if the device reports
  // less.
  caps.base_align_bytes =
      std::clamp<int>(static_cast<int>(query<cl_uint>(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN, 1024) / 8), 128, 4096);
  caps.unified = query<cl_bool>(device, CL_DEVICE_HOST_UNIFIED_MEMORY, CL_FALSE) == CL_TRUE;
  caps.fp64 = query<cl_device_fp_config>(device, CL_DEVICE_DOUBLE_FP_CONFIG, 0) != 0;
  caps.max_kernel_arg_bytes =
      static_cast<int>(std::min<size_t>(query<size_t>(device, CL_DEVICE_MAX_PARAMETER_SIZE, 1024), 1 << 16));
  // The call that takes a priority exists since OpenCL 2.0.
  const std::string version = device_text(device, CL_DEVICE_VERSION);  // "OpenCL 3.0 ...".
  caps.queue_priorities = has_word(extensions, "cl_khr_priority_hints") && version.compare(0, 8, "OpenCL 2") >= 0;
  if (caps.is_cpu) {
    const int width = static_cast<int>(query<cl_uint>(device, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, 4));
    caps.vector_floats = width >= 16 ? 16 : width >= 8 ? 8 : 4;
    // Interpreters report a width of one float. One of them, Oclgrind, aborts at the prefetch instruction.
    caps.prefetch = width > 1;
    caps.fp16_convert = has_word(extensions, "cl_khr_fp16");
    caps.keeps_negations = false;
    // The check of the kernel finds out whether the compiler reaches the instructions.
    for (const std::string kernel : {"gemm_pairs_item", "gemm_dot_pairs_item"}) {
      if (width >= 16 && multiplies_bf16_pairs()) caps.kernels.add(kernel + ":bf16");
      if (width >= 16 && multiplies_bytes()) caps.kernels.add(kernel + ":int8");
    }
    return caps;
  }
  caps.vector_floats = 4;
  caps.prefetch = false;
  caps.local_is_global = query<cl_device_local_mem_type>(device, CL_DEVICE_LOCAL_MEM_TYPE, CL_LOCAL) == CL_GLOBAL;
  caps.thread_items = thread_items(device, extensions);
  caps.item_registers = item_registers(device, caps.thread_items);
  caps.units = compute_units(device, extensions, caps.max_group_size);
  // Some of the programs below do not build on every device. Their compiler messages are hidden.
  const os::SilentErrors silent;
  if (caps.address_bits >= 64 && caps.max_alloc_bytes < caps.global_bytes && has_unrestricted_buffers(device, context)) {
    caps.unrestricted_buffers = true;
    caps.max_alloc_bytes = caps.global_bytes;
  }
  // Only a compiler that accepts this instruction (fp32 to TF32) can have tensor cores for more than fp16.
  const char* rounds =
      "__kernel void k(__global uint* p) { uint r; asm(\"cvt.rna.tf32.f32 %0, %1;\" : \"=r\"(r) : \"f\"(1.0f)); p[0] = r; }";
  const bool inline_instructions = build_probe(device, context, rounds, "") > 0;
  caps.extremes_keep_signs = !inline_instructions;  // A device cannot say of which version its assembler is.
  if (inline_instructions) {
    if (probe_mma(context, device, "")) caps.kernels.add(KernelLevel::k_warp);
    if (probe_wgmma(context, device, "")) caps.kernels.add(KernelLevel::k_warpgroup);
  } else if (!has_word(extensions, "cl_nv_device_attribute_query")) {
    probe_matrix_instructions(context, device, extensions, caps);
  } else if (probe_mma(context, device, "-D HALVES")) {
    caps.matrix = MatrixInstructions::kMma8;
    for (const char* kernel : {"gemm_warp:fp16", "conv_warp:fp16", "conv_weight_warp:fp16"}) caps.kernels.add(kernel);
  }
  return caps;
}

}  // namespace ocl::runtime
