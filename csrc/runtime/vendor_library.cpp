// csrc/runtime/vendor_library.cpp: loads a runtime from its library or .icd file and gets its platforms.
#include "csrc/runtime/vendor_library.h"

#include <algorithm>
#include <filesystem>

#include "csrc/support/log.h"
#include "csrc/support/os.h"
#include "csrc/support/path.h"

namespace ocl::runtime {
namespace {

namespace fs = std::filesystem;

/// Returns the path of the library that an .icd file names. Files of conda and pip may have a path of the machine that built
/// the package. For <prefix>/etc/OpenCL/vendors/x.icd, the library is then <prefix>/lib/<library>.
std::string library_of(const fs::path& icd) {
  std::string line = os::first_line(text_of(icd));
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
  const fs::path named = path_of(line);
  std::error_code ignored;
  if (line.empty() || !named.is_absolute() || fs::exists(named, ignored)) return line;
  const fs::path beside = icd.parent_path() / "../../../lib" / named.filename();
  return fs::exists(beside, ignored) ? text_of(fs::weakly_canonical(beside, ignored)) : line;
}

void add_platforms(const std::string& library_path, std::vector<cl_platform_id>& platforms,
                   std::vector<std::string>& problems) {
  std::string problem;
  void* library = os::open_library(library_path, problem);
  if (!library) {
    problems.push_back(library_path + ": does not open: " + problem);
    return;
  }
  using Extension = void*(CL_API_CALL*)(const char*);
  using PlatformIds = cl_int(CL_API_CALL*)(cl_uint, cl_platform_id*, cl_uint*);
  const auto extension = reinterpret_cast<Extension>(os::library_symbol(library, "clGetExtensionFunctionAddress"));
  auto platform_ids = reinterpret_cast<PlatformIds>(os::library_symbol(library, "clIcdGetPlatformIDsKHR"));
  if (!platform_ids && extension) platform_ids = reinterpret_cast<PlatformIds>(extension("clIcdGetPlatformIDsKHR"));
  if (!platform_ids) {
    problems.push_back(library_path + ": is no OpenCL runtime (it lacks clIcdGetPlatformIDsKHR)");
    return;
  }
  // A runtime with version 2 of cl_khr_icd lets the loader own a slot in each handle. Such a runtime works only through
  // the loader.
  if (extension && extension("clIcdSetPlatformDispatchDataKHR")) {
    problems.push_back(library_path + ": needs the system's loader; put its .icd file into /etc/OpenCL/vendors");
    return;
  }
  cl_platform_id found[16];
  cl_uint count = 0;
  const cl_int status = platform_ids(16, found, &count);
  if (status != CL_SUCCESS)
    problems.push_back(library_path + ": clIcdGetPlatformIDsKHR: " + status_name(status));
  else
    platforms.insert(platforms.end(), found, found + std::min<cl_uint>(count, 16));
}

}  // namespace

std::vector<cl_platform_id> vendor_platforms(const std::string& path, std::vector<std::string>& problems) {
  std::vector<std::string> libraries;
  std::error_code error;
  const fs::path given = path_of(path);
  if (fs::is_directory(given, error)) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(given, error))
      if (entry.path().extension() == ".icd") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) {
      const std::string library = library_of(file);
      // Packages leave .icd files of parts that are not installed. The linker finds libraries without a path.
      if (path_of(library).is_absolute() && !fs::exists(path_of(library), error))
        log_message(LogLevel::kDebug, "runtime", text_of(file) + " names a library that is not there: " + library);
      else if (!library.empty())
        libraries.push_back(library);
    }
  } else if (given.extension() == ".icd") {
    libraries.push_back(library_of(given));
  } else {
    libraries.push_back(path);
  }
  std::vector<cl_platform_id> platforms;
  for (const std::string& library : libraries) add_platforms(library, platforms, problems);
  return platforms;
}

}  // namespace ocl::runtime
