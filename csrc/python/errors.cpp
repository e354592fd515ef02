// csrc/python/errors.cpp: ErrorKind -> exception class of torch_ocl_compile/errors.py, for every function of _C.
#include "csrc/python/errors.h"

#include <torch/csrc/Exceptions.h>

namespace py = pybind11;

namespace ocl::python {

namespace {

const char* class_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kConfig: return "ConfigError";
    case ErrorKind::kUnsupported: return "UnsupportedError";
    case ErrorKind::kDevice: return "DeviceError";
    case ErrorKind::kBuild: return "BuildError";
    case ErrorKind::kOutOfMemory: return "OutOfMemoryError";
    case ErrorKind::kInternal: return "InternalError";
  }
  return "InternalError";
}

void translate(std::exception_ptr pointer) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    set_python_error(error);
  } catch (python_error& error) {
    error.restore();
  } catch (const c10::Error&) {
    torch::translate_exception_to_python(pointer);
  }
}

}  // namespace

void set_python_error(const Error& error) {
  const py::object cls = py::module_::import("torch_ocl_compile.errors").attr(class_name(error.kind()));
  PyErr_SetString(cls.ptr(), error.what());
}

void bind_errors(py::module_&) { py::register_local_exception_translator(translate); }

}  // namespace ocl::python
