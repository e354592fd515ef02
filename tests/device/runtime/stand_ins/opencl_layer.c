// tests/device/runtime/stand_ins/opencl_layer.c: a layer of the OpenCL loader. It makes CPU runtimes import memory by file
// descriptors, and gives devices the UUID that stand_ins/cuda.c has. With both changes, a CPU device behaves like an
// NVIDIA GPU with CUDA.
#define CL_TARGET_OPENCL_VERSION 300
#define LAYER_NAME "stand-in for NVIDIA"
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "layer.h"
#include "uuid.h"

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;

struct Mapping {
  void* address;
  size_t bytes;
};

/// Returns the number of the GPU that a device pretends to be: devices are numbered as they are first asked for it. If there is
/// one GPU, each device pretends to be it.
static int number_of(cl_device_id device) {
  static cl_device_id known[8];
  static int count;
  if (stand_in_count() == 1) return 0;
  pthread_mutex_lock(&g_lock);
  int index = 0;
  while (index < count && known[index] != device) ++index;
  if (index == count) known[count++] = device;
  pthread_mutex_unlock(&g_lock);
  return index;
}

static void CL_CALLBACK unmap(cl_mem memory, void* data) {
  struct Mapping* mapping = data;
  munmap(mapping->address, mapping->bytes);
  free(mapping);
}

static cl_int CL_API_CALL device_info(cl_device_id device, cl_device_info name, size_t size, void* value, size_t* needed) {
  if (name != CL_DEVICE_UUID_KHR) return g_below->clGetDeviceInfo(device, name, size, value, needed);
  if (needed) *needed = 16;
  if (value && size >= 16) stand_in_uuid(value, number_of(device));
  return CL_SUCCESS;
}

static cl_mem CL_API_CALL create_buffer(cl_context context, const cl_mem_properties* properties, cl_mem_flags flags,
                                        size_t bytes, void* host, cl_int* status) {
  if (!properties || properties[0] != CL_EXTERNAL_MEMORY_HANDLE_OPAQUE_FD_KHR || getenv("OCL_STAND_IN_NO_IMPORT")) {
    *status = CL_INVALID_PROPERTY;
    return NULL;
  }
  const int file = (int)properties[1];
  void* address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  cl_mem memory = g_below->clCreateBuffer(context, flags | CL_MEM_USE_HOST_PTR, bytes, address, status);
  if (*status != CL_SUCCESS) return NULL;
  close(file);
  struct Mapping* mapping = malloc(sizeof(*mapping));
  mapping->address = address;
  mapping->bytes = bytes;
  g_below->clSetMemObjectDestructorCallback(memory, &unmap, mapping);
  return memory;
}

static void replace_functions(void) {
  g_layer.clGetDeviceInfo = &device_info;
  g_layer.clCreateBufferWithProperties = &create_buffer;
}
