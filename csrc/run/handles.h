// csrc/run/handles.h: what stands behind the handles of ocl_run.h, and how its functions report errors.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <vector>

#include "csrc/package/model.h"
#include "csrc/run/ocl_run.h"
#include "csrc/support/error.h"

namespace ocl::run {

/// Texts for ocl_info.
struct Described {
  ocl_kind kind = OCL_NOTHING;
  ocl_dtype dtype = OCL_F32;
  std::string name, sizes;
};
struct DescribedMethod {
  std::vector<Described> arguments, results;
};

/// Returns the text of ocl_error().
const char* last_error() noexcept;
void forget_error() noexcept;
/// Keeps the message for ocl_error(), and returns the status.
ocl_status failed(ErrorKind kind, const char* message) noexcept;

/// Calls `call`. Keeps the message of its exception for ocl_error(), and turns it into a status.
template <class Call>
ocl_status guarded(const Call& call) noexcept {
  try {
    forget_error();
    call();
    return OCL_OK;
  } catch (const Error& error) {
    return failed(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return failed(ErrorKind::kOutOfMemory, "the host has no more memory");
  } catch (const std::exception& error) {
    return failed(ErrorKind::kInternal, error.what());
  }
}

inline void expect(bool condition, const char* problem) {
  if (!condition) fail(ErrorKind::kConfig, problem);
}

}  // namespace ocl::run

struct ocl_tensor {
  ocl::package::DeviceTensor tensor;
};

struct ocl_model {
  ocl::package::Model model;
  std::vector<ocl::run::DescribedMethod> methods;
};
