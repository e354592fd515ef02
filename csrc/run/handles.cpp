// csrc/run/handles.cpp: keeps the last error of each thread.
#include "csrc/run/handles.h"

namespace ocl::run {
namespace {

thread_local std::string g_error;  // NOLINT

ocl_status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kConfig:
    case ErrorKind::kOutOfBounds:
    case ErrorKind::kIndex:
      return OCL_BAD_INPUT;
    case ErrorKind::kUnsupported:
      return OCL_UNSUPPORTED;
    case ErrorKind::kDevice:
      return OCL_DEVICE;
    case ErrorKind::kBuild:
      return OCL_BUILD;
    case ErrorKind::kOutOfMemory:
      return OCL_OUT_OF_MEMORY;
    case ErrorKind::kInternal:
      return OCL_INTERNAL;
  }
  return OCL_INTERNAL;
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
