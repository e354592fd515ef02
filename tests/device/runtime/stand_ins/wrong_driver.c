// tests/device/runtime/stand_ins/wrong_driver.c: a layer of the OpenCL loader that makes a runtime look like one that nobody has tried, whose
// compiler is wrong. OCL_STAND_IN_PLATFORM, if it is set, is the only platform with the fault. OCL_STAND_IN_LINES are put in front of each program, and each OCL_STAND_IN_FROM becomes OCL_STAND_IN_TO.
#define CL_TARGET_OPENCL_VERSION 300
#define LAYER_NAME "stand-in for a wrong driver"
#include <CL/cl.h>
#include <stdlib.h>
#include <string.h>

#include "layer.h"

static const char* variable(const char* name) {
  const char* value = getenv(name);
  return value ? value : "";
}

static int is_meant(cl_platform_id platform) {
  char name[256] = "";
  g_below->clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof(name) - 1, name, NULL);
  return !*variable("OCL_STAND_IN_PLATFORM") || strcmp(name, variable("OCL_STAND_IN_PLATFORM")) == 0;
}

static cl_int CL_API_CALL platform_info(cl_platform_id platform, cl_platform_info name, size_t size, void* value, size_t* needed) {
  static const char kName[] = "stand-in";
  if (name != CL_PLATFORM_NAME || !is_meant(platform)) return g_below->clGetPlatformInfo(platform, name, size, value, needed);
  if (needed) *needed = sizeof(kName);
  if (value && size >= sizeof(kName)) memcpy(value, kName, sizeof(kName));
  return CL_SUCCESS;
}

/// Returns the program text with the planted fault. The caller frees it.
static char* planted(cl_uint count, const char** texts, const size_t* lengths) {
  const char *lines = variable("OCL_STAND_IN_LINES"), *from = variable("OCL_STAND_IN_FROM"), *to = variable("OCL_STAND_IN_TO");
  size_t bytes = strlen(lines) + 2;
  for (cl_uint i = 0; i < count; ++i) bytes += lengths && lengths[i] ? lengths[i] : strlen(texts[i]);
  char* whole = calloc(bytes, 1);
  strcpy(whole, lines);
  strcat(whole, "\n");
  for (cl_uint i = 0; i < count; ++i) strncat(whole, texts[i], lengths && lengths[i] ? lengths[i] : strlen(texts[i]));
  if (!*from) return whole;
  size_t found = 0;
  for (char* at = strstr(whole, from); at; at = strstr(at + strlen(from), from)) ++found;
  char* result = calloc(bytes + found * strlen(to) + 1, 1);
  char *end = result, *at = whole;
  for (char* next = strstr(at, from); next; at = next + strlen(from), next = strstr(at, from)) {
    memcpy(end, at, (size_t)(next - at));
    end += next - at;
    memcpy(end, to, strlen(to));
    end += strlen(to);
  }
  strcpy(end, at);
  free(whole);
  return result;
}

static cl_program CL_API_CALL create_program(cl_context context, cl_uint count, const char** texts, const size_t* lengths,
                                             cl_int* status) {
  cl_device_id device = NULL;
  cl_platform_id platform = NULL;
  g_below->clGetContextInfo(context, CL_CONTEXT_DEVICES, sizeof(device), &device, NULL);
  g_below->clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof(platform), &platform, NULL);
  if (!is_meant(platform)) return g_below->clCreateProgramWithSource(context, count, texts, lengths, status);
  char* text = planted(count, texts, lengths);
  const char* one = text;
  cl_program program = g_below->clCreateProgramWithSource(context, 1, &one, NULL, status);
  free(text);
  return program;
}

static void replace_functions(void) {
  g_layer.clGetPlatformInfo = &platform_info;
  g_layer.clCreateProgramWithSource = &create_program;
}
