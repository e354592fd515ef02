// csrc/runtime/opencl/vendor_library.cpp: loads a runtime from its library or .icd file and gets its platforms.
#include "csrc/runtime/opencl/vendor_library.h"

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

using Extension = void*(CL_API_CALL*)(const char*);
using PlatformIds = cl_int(CL_API_CALL*)(cl_uint, cl_platform_id*, cl_uint*);

/// The functions of cl_khr_icd in a runtime's library.
struct IcdFunctions {
  PlatformIds platform_ids = nullptr;
  // A runtime with version 2 of cl_khr_icd lets the loader own a slot in each handle. Such a runtime works only through
  // the loader.
  bool needs_loader = false;
};

/// Opens a runtime's library. A failure adds a line to `problems`, which begins with `label`.
IcdFunctions open_runtime(const std::string& label, const std::string& library_path, std::vector<std::string>& problems) {
  IcdFunctions functions;
  std::string problem;
  void* library = os::open_library(library_path, problem);
  if (!library) {
    problems.push_back(label + ": does not open: " + problem);
    return functions;
  }
  const auto extension = reinterpret_cast<Extension>(os::library_symbol(library, "clGetExtensionFunctionAddress"));
  functions.platform_ids = reinterpret_cast<PlatformIds>(os::library_symbol(library, "clIcdGetPlatformIDsKHR"));
  if (!functions.platform_ids && extension)
    functions.platform_ids = reinterpret_cast<PlatformIds>(extension("clIcdGetPlatformIDsKHR"));
  if (!functions.platform_ids) problems.push_back(label + ": is no OpenCL runtime (it lacks clIcdGetPlatformIDsKHR)");
  functions.needs_loader = extension && extension("clIcdSetPlatformDispatchDataKHR");
  return functions;
}

void add_platforms(const std::string& library_path, std::vector<cl_platform_id>& platforms,
                   std::vector<std::string>& problems) {
  const IcdFunctions functions = open_runtime(library_path, library_path, problems);
  if (!functions.platform_ids) return;
  if (functions.needs_loader) {
    problems.push_back(library_path + ": needs the system's loader; put its .icd file into /etc/OpenCL/vendors");
    return;
  }
  cl_platform_id found[16];
  cl_uint count = 0;
  const cl_int status = functions.platform_ids(16, found, &count);
  if (status != CL_SUCCESS)
    problems.push_back(library_path + ": clIcdGetPlatformIDsKHR: " + status_name(status));
  else
    platforms.insert(platforms.end(), found, found + std::min<cl_uint>(count, 16));
}

/// Returns the .icd files of a folder in the order of their names, or the file itself.
std::vector<fs::path> icd_files(const fs::path& given) {
  std::error_code error;
  if (!fs::is_directory(given, error)) return {given};
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(given, error))
    if (entry.path().extension() == ".icd") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::vector<cl_platform_id> vendor_platforms(const std::string& path, std::vector<std::string>& problems) {
  std::vector<std::string> libraries;
  std::error_code error;
  const fs::path given = path_of(path);
  if (fs::is_directory(given, error)) {
    for (const fs::path& file : icd_files(given)) {
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

void check_listed_runtimes(const std::string& list, std::vector<std::string>& problems) {
  std::error_code error;
  if (list.empty() || !fs::exists(path_of(list), error)) return;
  for (const fs::path& file : icd_files(path_of(list))) {
    if (file.extension() != ".icd") continue;
    const std::string library = library_of(file), label = text_of(file) + ": " + library;
    if (library.empty()) {
      problems.push_back(text_of(file) + ": is empty; its first line should be the path of a runtime's library");
      continue;
    }
    const IcdFunctions functions = open_runtime(label, library, problems);
    if (!functions.platform_ids || functions.needs_loader) continue;
    cl_uint count = 0;
    const cl_int status = functions.platform_ids(0, nullptr, &count);
    if (status != CL_SUCCESS || count == 0) problems.push_back(label + ": opens, but finds no device that it can use");
  }
}

}  // namespace ocl::runtime
