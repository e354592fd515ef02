// csrc/torch/errors.cpp: converts ocl::Error to Python exceptions.
#include "csrc/torch/errors.h"

#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include "csrc/support/compiler_crash.h"

namespace ocl::aten {

namespace {

const char* class_name(ErrorKind kind) {
  static constexpr const char* kNames[] = {"ConfigError",      "UnsupportedError", "DeviceError",       "BuildError",
                                           "OutOfMemoryError", "InternalError",    "KernelBoundsError", "IndexError"};
  static_assert(std::size(kNames) == static_cast<size_t>(ErrorKind::kIndex) + 1);
  return kNames[static_cast<int>(kind)];
}

}  // namespace

void set_python_error(const Error& error) {
  const pybind11::module_ errors = pybind11::module_::import("torch_ocl_compile.errors");
  if (const auto* crash = dynamic_cast<const CompilerCrash*>(&error)) {
    const pybind11::object cls = errors.attr("CompilerCrashError"), raised = cls(crash->what(), crash->ops);
    PyErr_SetObject(cls.ptr(), raised.ptr());
    return;
  }
  const pybind11::object cls = error.kind() == ErrorKind::kIndex
                                   ? pybind11::reinterpret_borrow<pybind11::object>(PyExc_IndexError)
                                   : errors.attr(class_name(error.kind()));
  PyErr_SetString(cls.ptr(), error.what());
}

void rethrow(const Error& error) {
  if (error.kind() == ErrorKind::kOutOfMemory) TORCH_CHECK_WITH(OutOfMemoryError, false, error.what());
  pybind11::gil_scoped_acquire gil;
  set_python_error(error);
  python_error raised;
  raised.persist();
  throw raised;
}

}  // namespace ocl::aten
