// csrc/runtime/loader.cpp: OpenCL's functions, each a call through a pointer that `open_loader` fills in.
#include "csrc/runtime/loader.h"

#include <filesystem>
#include <tuple>
#include <type_traits>

#include "csrc/runtime/cl.h"
#include "csrc/support/os.h"

namespace ocl::runtime {
namespace {

constexpr const char* kLoader = "libOpenCL.so.1";

/// One pointer per OpenCL function; null without a loader, or where the loader is of an OpenCL version without the function.
struct Functions {
#define OCL_CL(result, name, parameters, arguments) decltype(&::name) name = nullptr;
#include "csrc/runtime/cl_functions.def"
#undef OCL_CL
};

Functions g_functions;

/// What a function without an implementation returns. Functions that make an object have their status as the last argument.
template <class Result, class... Arguments>
Result unavailable(Arguments... arguments) {
  constexpr cl_int kStatus = CL_INVALID_OPERATION;
  if constexpr (std::is_same_v<Result, cl_int>) {
    return kStatus;
  } else {
    cl_int* status = std::get<sizeof...(Arguments) - 1>(std::tuple(arguments...));
    if (status) *status = kStatus;
    return nullptr;
  }
}

/// Fills in the table. `library`: null for the functions that the process itself has. False if it has no OpenCL functions.
bool take_functions(void* library) {
#define OCL_CL(result, name, parameters, arguments) \
  g_functions.name = reinterpret_cast<decltype(&::name)>(os::library_symbol(library, #name));
#include "csrc/runtime/cl_functions.def"
#undef OCL_CL
  return g_functions.clGetPlatformIDs != nullptr;
}

}  // namespace

std::string open_loader(const std::vector<std::string>& vendor_libraries) {
  if (g_functions.clGetPlatformIDs || take_functions(nullptr)) return "";
  std::vector<std::string> candidates = {kLoader};
  for (const std::string& library : vendor_libraries)
    candidates.push_back((std::filesystem::path(library).parent_path() / kLoader).string());
  std::string reason, ignored;
  for (const std::string& candidate : candidates)
    if (void* library = os::open_library(candidate, reason.empty() ? reason : ignored); library && take_functions(library))
      return "";
  return "no OpenCL loader was found: " + reason;
}

}  // namespace ocl::runtime

// A hidden symbol serves this library alone: other libraries of the process keep the loader's functions.
#define OCL_CL(result, name, parameters, arguments)                                       \
  extern "C" __attribute__((visibility("hidden"))) result CL_API_CALL name parameters {   \
    using namespace ocl::runtime;                                                         \
    return g_functions.name ? g_functions.name arguments : unavailable<result> arguments; \
  }
#include "csrc/runtime/cl_functions.def"
#undef OCL_CL
