// csrc/python/testing_bindings.cpp: the functions of _C.testing, with which tests cause rare situations.
#include "csrc/exec/faults.h"
#include "csrc/python/pch.h"
#include "csrc/python/settings.h"
#include "csrc/runtime/queues/gate.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/host_allocator.h"

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
  t.def(
      "cache_entries",
      [](const std::string& table) {
        py::dict entries;
        if (const auto cache = settings().cache)
          for (const auto& [key, value] : cache->entries(table.c_str())) entries[py::str(key)] = py::bytes(value);
        return entries;
      },
      py::arg("table"));
  t.def(
      "plant",  // Changes the texts of kernels of plans that are made from now on: (kernel, part of its text, what replaces
                // it).
      [](const std::vector<std::tuple<std::string, std::string, std::string>>& faults) {
        std::vector<exec::Fault> planted;
        for (const auto& [kernel, part, by] : faults) planted.push_back({kernel, part, by});
        exec::plant(std::move(planted));
      },
      py::arg("faults"));
  t.def("pinned_events", &aten::pinned_events);
}

}  // namespace ocl::python
