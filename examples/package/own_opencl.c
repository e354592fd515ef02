/* examples/package/own_opencl.c: a package in the OpenCL context of this program: own_opencl digits.ocl

   A kernel of this program draws images, the package reads digits in them, and a second queue copies the digits to the host.
   Nothing else is copied, and the host waits once, at the end. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>

#include "ocl_run.h"

enum { IMAGES = 4, PIXELS = IMAGES * 64 };

static const char* const text =
    "kernel void draw(global float* pixels) {\n"
    "  size_t i = get_global_id(0), column = i % 8;\n"
    "  pixels[i] = column == 3 || column == 4 ? 16 : 0;\n" /* a stroke from top to bottom */
    "}\n";

static void check(ocl_status status) {
  if (status == OCL_OK) return;
  fprintf(stderr, "own_opencl: %s\n", ocl_error());
  exit(1);
}

static void check_cl(cl_int status, const char* what) {
  if (status == CL_SUCCESS) return;
  fprintf(stderr, "own_opencl: %s returned %d\n", what, (int)status);
  exit(1);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: own_opencl digits.ocl\n");
    return 2;
  }
  /* What a program with OpenCL has: a context, queues, a kernel and a buffer. */
  cl_int status;
  cl_platform_id platform;
  cl_device_id device;
  check_cl(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
  check_cl(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "clGetDeviceIDs");
  cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
  check_cl(status, "clCreateContext");
  cl_command_queue queue = clCreateCommandQueue(context, device, 0, &status);
  check_cl(status, "clCreateCommandQueue");
  cl_command_queue reader = clCreateCommandQueue(context, device, 0, &status);
  check_cl(status, "clCreateCommandQueue");
  const char* source = text;
  cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &status);
  check_cl(status, "clCreateProgramWithSource");
  check_cl(clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");
  cl_kernel draw = clCreateKernel(program, "draw", &status);
  check_cl(status, "clCreateKernel");
  cl_mem pixels = clCreateBuffer(context, CL_MEM_READ_WRITE, PIXELS * sizeof(float), NULL, &status);
  check_cl(status, "clCreateBuffer");

  /* The library takes the context and the queue. This comes before the first model on the device. */
  ocl_opencl own = {context, device, queue};
  int number;
  check(ocl_opencl_share(&own, &number));
  char name[16];
  snprintf(name, sizeof name, "%d", number);
  ocl_options options = {sizeof(ocl_options), name, NULL, 0, 0};
  ocl_model* model;
  check(ocl_open(argv[1], &options, &model));

  /* The kernel and the call are in one queue, so the call sees what the kernel has written. */
  const int64_t sizes[3] = {IMAGES, 8, 8};
  const size_t count = PIXELS;
  ocl_tensor* images;
  check(ocl_tensor_wrap(model, OCL_F32, 3, sizes, pixels, 0, &images));
  check_cl(clSetKernelArg(draw, 0, sizeof pixels, &pixels), "clSetKernelArg");
  check_cl(clEnqueueNDRangeKernel(queue, draw, 1, NULL, &count, NULL, 0, NULL, NULL), "clEnqueueNDRangeKernel");
  ocl_value argument = {OCL_TENSOR, images, 0, 0}, result;
  check(ocl_call(model, 0, &argument, 1, &result, 1));

  /* Another queue waits for the call by its event. */
  ocl_event* called;
  check(ocl_event_create(model, &called));
  cl_event waited = ocl_event_opencl(called), copied;
  cl_mem memory;
  size_t offset;
  int64_t digits[IMAGES];
  check(ocl_tensor_memory(result.tensor, &memory, &offset));
  check_cl(clFlush(queue), "clFlush");
  check_cl(clEnqueueReadBuffer(reader, memory, CL_FALSE, offset, sizeof digits, digits, 1, &waited, &copied),
           "clEnqueueReadBuffer");
  check_cl(clFlush(reader), "clFlush");

  /* The program could work here, and ask from time to time. Then later work of the package waits for the copy, and so does the
   * host. */
  int done = 0;
  while (!done) check(ocl_event_wait(called, 0.1, &done));
  check(ocl_opencl_wait(model, copied));
  check_cl(clWaitForEvents(1, &copied), "clWaitForEvents");
  for (int i = 0; i < IMAGES; ++i) printf("%d\n", (int)digits[i]);

  ocl_event_release(called);
  ocl_tensor_release(result.tensor);
  ocl_tensor_release(images);
  ocl_close(model);
  clReleaseEvent(copied);
  clReleaseMemObject(pixels);
  clReleaseKernel(draw);
  clReleaseProgram(program);
  clReleaseCommandQueue(reader);
  clReleaseCommandQueue(queue);
  clReleaseContext(context);
  return 0;
}
