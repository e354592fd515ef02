// csrc/runtime/probes/probe_program.cpp: builds and runs a small program.
#include "csrc/runtime/probes/probe_program.h"

#include <chrono>

#include "csrc/runtime/opencl/hidden_instructions.h"

namespace ocl::runtime {

ProgramHandle build_probe_program(cl_context context, cl_device_id device, const char* text, const char* options) {
  cl_int status = CL_SUCCESS;
  ProgramHandle program(clCreateProgramWithSource(context, 1, &text, nullptr, &status));
  if (status != CL_SUCCESS || clBuildProgram(program.get(), 1, &device, options, nullptr, nullptr) != CL_SUCCESS) return {};
  return program;
}

std::vector<float> run_probe(cl_context context, cl_device_id device, cl_program program, size_t items, size_t count) {
  cl_int status = CL_SUCCESS;
  KernelHandle kernel(clCreateKernel(program, "k", &status));
  if (status != CL_SUCCESS) return {};
  std::vector<float> values(count);
  MemHandle out(clCreateBuffer(context, CL_MEM_READ_WRITE, count * sizeof(float), nullptr, &status));
  if (status != CL_SUCCESS) return {};
  QueueHandle queue(clCreateCommandQueue(context, device, 0, &status));
  if (status != CL_SUCCESS) return {};
  cl_mem memory = out.get();
  if (clSetKernelArg(kernel.get(), 0, sizeof(memory), &memory) != CL_SUCCESS ||
      clEnqueueNDRangeKernel(queue.get(), kernel.get(), 1, nullptr, &items, &items, 0, nullptr, nullptr) != CL_SUCCESS)
    return {};
  cl_event raw = nullptr;
  if (clEnqueueReadBuffer(queue.get(), memory, CL_FALSE, 0, count * sizeof(float), values.data(), 0, nullptr, &raw) !=
          CL_SUCCESS ||
      clFlush(queue.get()) != CL_SUCCESS)
    return {};
  const EventHandle event(raw);
  if (wait_within(raw, std::chrono::seconds(2)) != Completion::kDone) return {};
  return values;
}

}  // namespace ocl::runtime
