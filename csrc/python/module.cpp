// csrc/python/module.cpp: the extension module _C. Each *_bindings.cpp file binds its own part: types before the functions that
// have them as arguments, so that scripts/stubs.py finds their names.
#include <pybind11/pybind11.h>

namespace py = pybind11;

namespace ocl::python {

void bind_errors(py::module_& m);
void bind_device(py::module_& m);
void bind_memory(py::module_& m);
void bind_cuda(py::module_& m);
void bind_eager(py::module_& m);
void bind_recipe(py::module_& m);
void bind_ir(py::module_& m);
void bind_exec(py::module_& m);
void bind_cache(py::module_& m);
void bind_distributed(py::module_& m);
void bind_testing(py::module_& m);

}  // namespace ocl::python

PYBIND11_MODULE(_C, m) {
  m.doc() = "The C++ core of torch_ocl_compile.";
  ocl::python::bind_errors(m);
  ocl::python::bind_device(m);
  ocl::python::bind_memory(m);
  ocl::python::bind_cuda(m);
  ocl::python::bind_ir(m);
  ocl::python::bind_eager(m);
  ocl::python::bind_recipe(m);
  ocl::python::bind_exec(m);
  ocl::python::bind_cache(m);
  ocl::python::bind_distributed(m);
  ocl::python::bind_testing(m);
}
