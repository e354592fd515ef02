// csrc/python/testing_bindings.cpp: _C.testing: what tests need to make rare things happen.
#include "csrc/python/pch.h"
#include "csrc/runtime/gate.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/host_allocator.h"

namespace py = pybind11;

namespace ocl::python {

void bind_testing(py::module_& m) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  py::module_ t = m.def_submodule("testing", "Delays and counters for tests.");
  py::class_<runtime::Gate>(t, "Gate")
      .def(py::init([](int device, int stream) {
             const py::gil_scoped_release release;
             return std::make_unique<runtime::Gate>(aten::device_at(device).queue(stream));
           }),
           py::arg("device_index"), py::arg("stream"))
      .def("open", &runtime::Gate::open, Unlocked());
  t.def("pinned_events", &aten::pinned_events);
}

}  // namespace ocl::python
