// csrc/distributed/nccl_library.cpp: opens NCCL; see nccl_library.h.
#include "csrc/distributed/nccl_library.h"

#include <memory>
#include <mutex>

#include "csrc/support/error.h"
#include "csrc/support/os.h"

namespace ocl::distributed {
namespace {

constexpr int kOldest = 21400;

NcclLibrary load(void* library) {
  NcclLibrary nccl;
  const char* missing = nullptr;
#define OCL_NCCL(member, name, parameters)                                                                      \
  nccl.functions.member = reinterpret_cast<decltype(nccl.functions.member)>(os::library_symbol(library, name)); \
  if (!nccl.functions.member && !missing) missing = name;
#include "csrc/distributed/nccl_functions.def"
#undef OCL_NCCL
  nccl.functions.error_text =
      reinterpret_cast<decltype(nccl.functions.error_text)>(os::library_symbol(library, "ncclGetErrorString"));
  if (nccl.functions.version) nccl.functions.version(&nccl.version);
  if (nccl.version < kOldest)
    fail(ErrorKind::kUnsupported, "NCCL " + nccl_version_text(nccl.version) + " is too old; 2.14 is the oldest that works");
  if (missing || !nccl.functions.error_text)
    fail(ErrorKind::kUnsupported,
         std::string("the NCCL library has no function ") + (missing ? missing : "ncclGetErrorString"));
  return nccl;
}

}  // namespace

const NcclLibrary& nccl_library(const std::vector<std::string>& files) {
  static std::mutex mutex;
  static std::unique_ptr<NcclLibrary> loaded;
  const std::lock_guard lock(mutex);
  if (loaded) return *loaded;
  std::string first_problem;
  for (const std::string& file : files) {
    std::string problem;
    if (void* library = os::open_library(file, problem)) {
      loaded = std::make_unique<NcclLibrary>(load(library));
      return *loaded;
    }
    if (first_problem.empty()) first_problem = problem;
  }
  fail(ErrorKind::kUnsupported, "NCCL cannot be opened: " + first_problem);
}

std::string nccl_version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
}

}  // namespace ocl::distributed
