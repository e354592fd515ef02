// csrc/runtime/opencl/compile.cpp: builds programs, with a second build for kernels with hidden instructions.
#include "csrc/runtime/opencl/compile.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "csrc/runtime/opencl/build_options.h"
#include "csrc/runtime/opencl/cl_bindings.h"
#include "csrc/runtime/opencl/hidden_instructions.h"

namespace ocl::runtime {
namespace {

std::string build_log(cl_program program, cl_device_id device) {
  return cl::Program(program, true).getBuildInfo<CL_PROGRAM_BUILD_LOG>(cl::Device(device, true)).c_str();
}

/// Returns the device's options. Adds the options in the first line of the text, if that line begins with kOptionsMarker.
std::string options_for(const std::string& source, const std::string& options) {
  const size_t marker = sizeof(kOptionsMarker) - 1;
  if (source.compare(0, marker, kOptionsMarker) != 0) return options;
  return options + " " + source.substr(marker, source.find('\n') - marker);
}

}  // namespace

std::string without_optimisation(const std::string& source) {
  const std::string option = std::string(kOptionsMarker) + "-cl-opt-disable";
  if (source.starts_with(kOptionsMarker)) return option + " " + source.substr(sizeof(kOptionsMarker) - 1);
  return option + "\n" + source;
}

Built compile(cl_context context, cl_device_id device, const std::string& options, const std::string& source, bool wants_log) {
  Built built;
  const char* text = source.data();
  const size_t bytes = source.size();
  built.handle = ProgramHandle(clCreateProgramWithSource(context, 1, &text, &bytes, &built.status));
  if (built.status != CL_SUCCESS) return built;
  built.status = build_with_options(context, device, built.handle.get(), options_for(source, options));
  if (built.status == CL_SUCCESS && hides_instructions(source)) {
    cl_int status = CL_SUCCESS;
    ProgramHandle whole = uncover_instructions(context, device, built.handle.get(), options.c_str(), &status);
    built.status = status;
    if (whole) built.handle = std::move(whole);
  }
  if (built.status != CL_SUCCESS || wants_log) built.log = build_log(built.handle.get(), device);
  return built;
}

std::vector<Built> compile_all(cl_context context, cl_device_id device, const std::string& options,
                               const std::vector<std::string>& sources, size_t threads, bool wants_log,
                               const std::function<void(size_t)>& done) {
  std::vector<Built> built(sources.size());
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < sources.size(); i = next++) {
      built[i] = compile(context, device, options, sources[i], wants_log);
      if (done) done(i);
    }
  };
  threads = std::min<size_t>({threads, sources.size(), std::max(1u, std::thread::hardware_concurrency())});
  std::vector<std::thread> others;
  for (size_t t = 1; t < threads; ++t) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  return built;
}

}  // namespace ocl::runtime
