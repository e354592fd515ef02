// tests/device/runtime/stand_ins/refusing_driver.c: a layer of the OpenCL loader with which a device refuses what some drivers refuse, and
// says of itself what other devices say. OCL_STAND_IN_PLATFORM is the only platform whose devices are GPUs or wrong; "": all.
// OCL_STAND_IN_IS holds words, each with a blank on both sides:
//   gpu          the device is a GPU, with local memory of its own
//   wrong        the platform is one that is known to be wrong
//   old          the platform has OpenCL 1.1
//   narrow       addresses have 32 bits
//   timeless     queues with CL_QUEUE_PROFILING_ENABLE are refused
//   strict       build options are refused, except for -D and -cl-intel-greater-than-4GB-buffer-required
//   single       no double precision, no atomics of 64 bits
//   global       local memory is global memory
//   small        buffers have at most 20.5 MiB
//   unrestricted larger buffers can be made with a flag, for programs that are built with Intel's option
//   lax          unknown flags and options mean nothing, and are no errors
//   eus          512 compute units are execution units; with `slices`, the device says that they are in 8 slices of 4 subslices
#define CL_TARGET_OPENCL_VERSION 300
#define LAYER_NAME "stand-in for a driver that refuses"
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layer.h"

#define MOST_BYTES (41ul << 19)
#define UNRESTRICTED (1ul << 23)
#define OPTION "-cl-intel-greater-than-4GB-buffer-required"
#define KEPT 4096

static cl_mem g_large[KEPT];          // Buffers that were made with the flag.
static cl_program g_ready[KEPT];      // Programs that were built with the option.
static unsigned g_large_count, g_ready_count;

static int is(const char* word) {
  const char* words = getenv("OCL_STAND_IN_IS");
  char wanted[64];
  snprintf(wanted, sizeof(wanted), " %s ", word);
  return words && strstr(words, wanted);
}

static cl_int give(const void* answer, size_t bytes, size_t size, void* value, size_t* needed) {
  if (needed) *needed = bytes;
  if (value && size < bytes) return CL_INVALID_VALUE;
  if (value) memcpy(value, answer, bytes);
  return CL_SUCCESS;
}

/// True if the platform of OCL_STAND_IN_PLATFORM is `platform`, or that of `device`.
static int is_chosen(cl_platform_id platform, cl_device_id device) {
  const char* chosen = getenv("OCL_STAND_IN_PLATFORM");
  char name[256] = "";
  if (!chosen || !*chosen) return 1;
  if (device) g_below->clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof(platform), &platform, NULL);
  g_below->clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof(name), name, NULL);
  return strcmp(name, chosen) == 0;
}

static cl_int CL_API_CALL platform_info(cl_platform_id platform, cl_platform_info name, size_t size, void* value,
                                        size_t* needed) {
  static const char kOld[] = "OpenCL 1.1 Mesa 20.3", kWrong[] = "rusticl";
  if (name == CL_PLATFORM_VERSION && is("old")) return give(kOld, sizeof(kOld), size, value, needed);
  if (name == CL_PLATFORM_NAME && is("wrong") && is_chosen(platform, NULL)) return give(kWrong, sizeof(kWrong), size, value, needed);
  return g_below->clGetPlatformInfo(platform, name, size, value, needed);
}

/// Blanks the words of the list that are not offered, and adds those that are.
static cl_int extensions(cl_device_id device, size_t size, void* value, size_t* needed) {
  char list[1 << 14] = "";
  const cl_int status = g_below->clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, sizeof(list) - 256, list, NULL);
  if (status != CL_SUCCESS) return status;
  const char* hidden[] = {"cl_khr_fp64", "cl_khr_int64_base_atomics", "cl_khr_int64_extended_atomics",
                          "cl_intel_device_attribute_query", "cl_intel_required_subgroup_size"};
  for (int i = 0; i < 5; ++i)
    if (is(i < 3 ? "single" : "eus"))
      for (char* at = strstr(list, hidden[i]); at; at = strstr(at, hidden[i])) memset(at, ' ', strlen(hidden[i]));
  if (is("eus")) strcat(list, " cl_intel_required_subgroup_size");
  if (is("slices")) strcat(list, " cl_intel_device_attribute_query");
  return give(list, strlen(list) + 1, size, value, needed);
}

static cl_int CL_API_CALL device_info(cl_device_id device, cl_device_info name, size_t size, void* value, size_t* needed) {
#define ANSWER(word, what, type, answer)                          \
  if (name == (what) && is(word)) {                               \
    const type stands_in = (answer);                              \
    return give(&stands_in, sizeof(type), size, value, needed);   \
  }
  if (is_chosen(NULL, device)) ANSWER("gpu", CL_DEVICE_TYPE, cl_device_type, CL_DEVICE_TYPE_GPU)
  ANSWER("narrow", CL_DEVICE_ADDRESS_BITS, cl_uint, 32)
  ANSWER("single", CL_DEVICE_DOUBLE_FP_CONFIG, cl_device_fp_config, 0)
  if (!is("global")) ANSWER("gpu", CL_DEVICE_LOCAL_MEM_TYPE, cl_device_local_mem_type, CL_LOCAL)
  ANSWER("global", CL_DEVICE_LOCAL_MEM_TYPE, cl_device_local_mem_type, CL_GLOBAL)
  ANSWER("small", CL_DEVICE_MAX_MEM_ALLOC_SIZE, cl_ulong, MOST_BYTES)
  ANSWER("eus", CL_DEVICE_MAX_COMPUTE_UNITS, cl_uint, 512)
  ANSWER("eus", CL_DEVICE_MAX_WORK_GROUP_SIZE, size_t, 256)
  ANSWER("slices", CL_DEVICE_NUM_SLICES_INTEL, cl_uint, 8)
  ANSWER("slices", CL_DEVICE_NUM_SUB_SLICES_PER_SLICE_INTEL, cl_uint, 4)
  if (name == CL_DEVICE_EXTENSIONS) return extensions(device, size, value, needed);
  return g_below->clGetDeviceInfo(device, name, size, value, needed);
}

static cl_command_queue CL_API_CALL create_queue(cl_context context, cl_device_id device,
                                                 cl_command_queue_properties properties, cl_int* status) {
  if (is("timeless") && (properties & CL_QUEUE_PROFILING_ENABLE)) {
    if (status) *status = CL_INVALID_QUEUE_PROPERTIES;
    return NULL;
  }
  return g_below->clCreateCommandQueue(context, device, properties, status);
}

/// Text in front of each program of a device without double precision: both words are errors there.
static cl_program CL_API_CALL create_program(cl_context context, cl_uint count, const char** texts, const size_t* lengths,
                                             cl_int* status) {
  static const char kSingle[] = "#undef cl_khr_fp64\n#define double no_double_precision\n#define atom_add no_atomics_of_64_bits\n";
  if (!is("single")) return g_below->clCreateProgramWithSource(context, count, texts, lengths, status);
  const char** all = calloc(count + 1, sizeof(*all));
  size_t* bytes = calloc(count + 1, sizeof(*bytes));
  all[0] = kSingle;
  for (cl_uint i = 0; i < count; ++i) {
    all[i + 1] = texts[i];
    bytes[i + 1] = lengths ? lengths[i] : 0;
  }
  cl_program program = g_below->clCreateProgramWithSource(context, count + 1, all, bytes, status);
  free(all);
  free(bytes);
  return program;
}

static cl_int CL_API_CALL build_program(cl_program program, cl_uint count, const cl_device_id* devices, const char* options,
                                        void(CL_CALLBACK* notify)(cl_program, void*), void* data) {
  char left[4096] = "", given[4096];
  snprintf(given, sizeof(given), "%s", options ? options : "");
  for (char* word = strtok(given, " "); word; word = strtok(NULL, " ")) {
    if (strcmp(word, OPTION) == 0) {
      if (!is("unrestricted") && !is("lax")) return CL_INVALID_BUILD_OPTIONS;
      g_ready[g_ready_count++ % KEPT] = program;
      continue;
    }
    if (is("strict") && strncmp(word, "-D", 2) != 0) return CL_INVALID_BUILD_OPTIONS;
    strcat(strcat(left, word), " ");
  }
  return g_below->clBuildProgram(program, count, devices, left, notify, data);
}

static cl_mem CL_API_CALL create_buffer(cl_context context, cl_mem_flags flags, size_t bytes, void* host, cl_int* status) {
  const int large = (flags & UNRESTRICTED) != 0 && !is("lax");
  const cl_mem_flags unknown = UNRESTRICTED | 1ul << 62;
  if (flags >> 62 && !is("lax")) {
    *status = CL_INVALID_VALUE;
    return NULL;
  }
  if ((large && !is("unrestricted")) || (!large && is("small") && bytes > MOST_BYTES)) {
    *status = large ? CL_INVALID_VALUE : CL_INVALID_BUFFER_SIZE;
    return NULL;
  }
  cl_mem memory = g_below->clCreateBuffer(context, flags & ~unknown, bytes, host, status);
  if (large && bytes > MOST_BYTES) g_large[g_large_count++ % KEPT] = memory;
  return memory;
}

/// A program without the option cannot address such a buffer.
static cl_int CL_API_CALL set_argument(cl_kernel kernel, cl_uint index, size_t size, const void* value) {
  for (unsigned i = 0; size == sizeof(cl_mem) && value && i < g_large_count && i < KEPT; ++i)
    if (memcmp(value, &g_large[i], size) == 0) {
      cl_program program = NULL;
      g_below->clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof(program), &program, NULL);
      unsigned ready = 0;
      while (ready < g_ready_count && ready < KEPT && g_ready[ready] != program) ++ready;
      if (ready == g_ready_count || ready == KEPT) return CL_INVALID_ARG_VALUE;
    }
  return g_below->clSetKernelArg(kernel, index, size, value);
}

static void replace_functions(void) {
  g_layer.clGetPlatformInfo = &platform_info;
  g_layer.clGetDeviceInfo = &device_info;
  g_layer.clCreateCommandQueue = &create_queue;
  g_layer.clCreateProgramWithSource = &create_program;
  g_layer.clBuildProgram = &build_program;
  g_layer.clCreateBuffer = &create_buffer;
  g_layer.clSetKernelArg = &set_argument;
}
