// csrc/python/errors.cpp: turns C++ errors of every function in _C into the exceptions of torch_ocl_compile/errors.py.
#include "csrc/torch/errors.h"

#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>

namespace py = pybind11;

namespace ocl::python {

namespace {

void translate(std::exception_ptr pointer) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    aten::set_python_error(error);
  } catch (python_error& error) {
    error.restore();
  } catch (const c10::Error&) {
    torch::translate_exception_to_python(pointer);
  }
}

}  // namespace

void bind_errors(py::module_&) { py::register_local_exception_translator(translate); }

}  // namespace ocl::python
