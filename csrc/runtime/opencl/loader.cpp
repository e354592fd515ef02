// csrc/runtime/opencl/loader.cpp: defines OpenCL's functions. Each calls through a pointer that `open_loader` sets.
#include "csrc/runtime/opencl/loader.h"

#include <algorithm>
#include <tuple>
#include <type_traits>
#include <utility>

#include "csrc/runtime/opencl/cl.h"
#include "csrc/support/compiler.h"
#include "csrc/support/os.h"
#include "csrc/support/path.h"

namespace ocl::runtime {
namespace {

/// One pointer per OpenCL function. It is null if there is no loader, or if the loader's OpenCL version lacks the function.
struct Functions {
#define OCL_CL(result, name, parameters, arguments) decltype(&::name) name = nullptr;
#include "csrc/runtime/opencl/cl_functions.def"
#undef OCL_CL
};

Functions g_functions;

/// Returns the error status of a function that the loader lacks. Functions that create an object store their status in
/// their last argument.
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

/// Fills in the table from `library`, or from the process itself if it is null. Returns false if there are no OpenCL functions.
bool take_functions(void* library) {
#define OCL_CL(result, name, parameters, arguments) \
  g_functions.name = reinterpret_cast<decltype(&::name)>(os::library_symbol(library, #name));
#include "csrc/runtime/opencl/cl_functions.def"
#undef OCL_CL
  return g_functions.clGetPlatformIDs != nullptr;
}

}  // namespace

std::string open_loader(const std::string& library, const std::vector<std::string>& vendor_libraries) {
  if (g_functions.clGetPlatformIDs || (library.empty() && take_functions(nullptr))) return "";
  std::vector<std::string> candidates = {library};
  if (library.empty()) {
    candidates.assign(os::kFileNames.opencl_libraries.begin(), os::kFileNames.opencl_libraries.end());
    const std::string usual = candidates.front();
    for (const std::string& vendor : vendor_libraries) candidates.push_back(text_of(path_of(vendor).parent_path() / usual));
  }
  std::vector<std::pair<std::string, std::string>> tried;  // Reason -> the libraries.
  for (const std::string& candidate : candidates) {
    std::string reason;
    void* opened = os::open_library(candidate, reason);
    if (opened && take_functions(opened)) return "";
    if (opened) reason = "lacks OpenCL's functions";
    if (reason.starts_with(candidate + ": ")) reason.erase(0, candidate.size() + 2);
    const auto same = std::ranges::find(tried, reason, &std::pair<std::string, std::string>::first);
    if (same == tried.end())
      tried.emplace_back(reason, candidate);
    else
      same->second += ", " + candidate;
  }
  std::string text;
  for (const auto& [reason, libraries] : tried) text += (text.empty() ? "" : "; ") + libraries + ": " + reason;
  return "no OpenCL loader was found: " + text;
}

}  // namespace ocl::runtime

// The symbols are hidden, so that only this library calls them. Other libraries of the process keep the loader's functions.
#define OCL_CL(result, name, parameters, arguments)                                       \
  extern "C" OCL_HIDDEN result CL_API_CALL name parameters {                              \
    using namespace ocl::runtime;                                                         \
    return g_functions.name ? g_functions.name arguments : unavailable<result> arguments; \
  }
#include "csrc/runtime/opencl/cl_functions.def"
#undef OCL_CL
