// csrc/runtime/opencl/binary.cpp: makes programs from binaries, and binaries from programs.
#include "csrc/runtime/opencl/binary.h"

#include "csrc/runtime/opencl/build_options.h"
#include "csrc/runtime/opencl/cl_bindings.h"

namespace ocl::runtime {

ProgramHandle load_binary(cl_context context, cl_device_id device, const std::string& options, const std::string& binary) {
  const auto* data = reinterpret_cast<const unsigned char*>(binary.data());
  const size_t bytes = binary.size();
  cl_int status = CL_SUCCESS, loaded = CL_SUCCESS;
  ProgramHandle handle(clCreateProgramWithBinary(context, 1, &device, &bytes, &data, &loaded, &status));
  if (status != CL_SUCCESS || loaded != CL_SUCCESS) return {};
  if (build_with_options(context, device, handle.get(), options) != CL_SUCCESS) return {};
  return handle;
}

std::string binary_of(cl_program program) {
  cl_int status = CL_SUCCESS;
  const auto binaries = cl::Program(program, true).getInfo<CL_PROGRAM_BINARIES>(&status);
  if (status != CL_SUCCESS || binaries.empty()) return "";
  return {binaries[0].begin(), binaries[0].end()};
}

}  // namespace ocl::runtime
