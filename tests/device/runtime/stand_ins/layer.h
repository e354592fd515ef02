// tests/device/runtime/stand_ins/layer.h: what layers of the OpenCL loader share. A file defines LAYER_NAME before it includes
// this one, and replace_functions(), which puts its functions into g_layer.
#pragma once

#include <CL/cl.h>
#include <CL/cl_layer.h>
#include <string.h>

static cl_icd_dispatch g_layer;
static const cl_icd_dispatch* g_below;

static void replace_functions(void);

cl_int CL_API_CALL clGetLayerInfo(cl_layer_info name, size_t size, void* value, size_t* needed) {
  static const char kName[] = LAYER_NAME;
  const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
  const size_t bytes = name == CL_LAYER_NAME ? sizeof(kName) : sizeof(version);
  if (name != CL_LAYER_NAME && name != CL_LAYER_API_VERSION) return CL_INVALID_VALUE;
  if (needed) *needed = bytes;
  if (value && size >= bytes) memcpy(value, name == CL_LAYER_NAME ? (const void*)kName : (const void*)&version, bytes);
  return CL_SUCCESS;
}

cl_int CL_API_CALL clInitLayer(cl_uint count, const cl_icd_dispatch* below, cl_uint* own_count, const cl_icd_dispatch** layer) {
  memcpy(&g_layer, below, sizeof(g_layer) < count * sizeof(void*) ? sizeof(g_layer) : count * sizeof(void*));
  g_below = below;
  replace_functions();
  *own_count = sizeof(g_layer) / sizeof(void*);
  *layer = &g_layer;
  return CL_SUCCESS;
}
