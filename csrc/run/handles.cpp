// csrc/run/handles.cpp: keeps the last error of each thread.
#include "csrc/run/handles.h"

namespace ocl::run {
namespace {

thread_local std::string g_error;  // NOLINT

ocl_status status_of(ErrorKind kind) {
  static constexpr ocl_status kStatuses[] = {OCL_BAD_INPUT,     OCL_UNSUPPORTED, OCL_DEVICE,    OCL_BUILD,
                                             OCL_OUT_OF_MEMORY, OCL_INTERNAL,    OCL_BAD_INPUT, OCL_BAD_INPUT};
  static_assert(std::size(kStatuses) == static_cast<size_t>(ErrorKind::kIndex) + 1);
  return kStatuses[static_cast<int>(kind)];
}

}  // namespace

const char* last_error() noexcept { return g_error.c_str(); }

void forget_error() noexcept { g_error.clear(); }

ocl_status failed(ErrorKind kind, const char* message) noexcept {
  try {
    g_error = message;
  } catch (...) {
    g_error.clear();
  }
  return status_of(kind);
}

}  // namespace ocl::run
