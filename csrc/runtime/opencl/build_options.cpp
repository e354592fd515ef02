// csrc/runtime/opencl/build_options.cpp: see build_options.h.
#include "csrc/runtime/opencl/build_options.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "csrc/runtime/opencl/cl_bindings.h"
#include "csrc/support/log.h"
#include "csrc/support/os.h"

namespace ocl::runtime {
namespace {

struct Accepted {
  std::mutex mutex;
  std::map<std::pair<cl_device_id, std::string>, std::string> of_options;
};

Accepted& accepted() {
  static auto* all = new Accepted;  // Never destroyed, because threads may outlive static destruction.
  return *all;
}

bool builds(cl_context context, cl_device_id device, const std::string& options) {
  const char* text = "__kernel void k(__global float* p) { p[0] = 1.0f; }";
  cl_int status = CL_SUCCESS;
  const ProgramHandle program(clCreateProgramWithSource(context, 1, &text, nullptr, &status));
  return status == CL_SUCCESS && clBuildProgram(program.get(), 1, &device, options.c_str(), nullptr, nullptr) == CL_SUCCESS;
}

/// Returns those of `options` with which a small kernel builds; all if it does not build without them.
std::string accepted_of(cl_context context, cl_device_id device, const std::string& options) {
  std::string kept, refused;
  {
    const os::SilentErrors silent;
    if (builds(context, device, options) || !builds(context, device, "")) return options;
    for (size_t begin = 0, end = 0; begin < options.size(); begin = end + 1) {
      end = std::min(options.find(' ', begin), options.size());
      const std::string word = options.substr(begin, end - begin);
      std::string& list = builds(context, device, word) ? kept : refused;
      list += (list.empty() ? "" : " ") + word;
    }
  }
  log_message(LogLevel::kWarning, "runtime",
              std::string(cl::Device(device, true).getInfo<CL_DEVICE_NAME>().c_str()) + ": the compiler refuses the options " +
                  refused + "; programs are built without them");
  return kept;
}

}  // namespace

cl_int build_with_options(cl_context context, cl_device_id device, cl_program program, const std::string& options) {
  const std::pair<cl_device_id, std::string> key{device, options};
  std::string known = options;
  bool is_known = options.empty();
  {
    const std::lock_guard lock(accepted().mutex);
    if (const auto row = accepted().of_options.find(key); row != accepted().of_options.end()) {
      known = row->second;
      is_known = true;
    }
  }
  const cl_int status = clBuildProgram(program, 1, &device, known.c_str(), nullptr, nullptr);
  if (status == CL_SUCCESS || is_known) return status;
  {
    const std::lock_guard lock(accepted().mutex);  // Held, so that one thread finds out and warns.
    const auto [row, is_new] = accepted().of_options.try_emplace(key, "");
    if (is_new) row->second = accepted_of(context, device, options);
    known = row->second;
  }
  return known == options ? status : clBuildProgram(program, 1, &device, known.c_str(), nullptr, nullptr);
}

}  // namespace ocl::runtime
