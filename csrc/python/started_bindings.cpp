// csrc/python/started_bindings.cpp: _C.exec.start, which begins a plan in another thread.
#include "csrc/exec/started_plan.h"
#include "csrc/python/interruptible.h"
#include "csrc/python/pch.h"
#include "csrc/python/plan_object.h"
#include "csrc/python/settings.h"
#include "csrc/runtime/build/build_pool.h"
#include "csrc/torch/device_state.h"

namespace ocl::python {
namespace {

/// Returns null if the plan cannot be made beside other work.
std::shared_ptr<exec::StartedPlan> start(const ir::Graph& graph, int device_index, const py::dict& options,
                                         bool scheduled_at_once) {
  const exec::PlanOptions plan_options = plan_options_from(options);
  runtime::Device& device = aten::device_at(device_index);
  const auto started = std::make_shared<std::shared_ptr<exec::StartedPlan>>();
  run_interruptibly([=, cache = settings().cache, &device] {
    const runtime::BinaryStore store = exec::binary_store(cache);
    if (exec::StartedPlan::is_possible(device, store, plan_options))
      *started = std::make_shared<exec::StartedPlan>(graph, device, store, plan_options, scheduled_at_once);
  });
  return *started;
}

}  // namespace

std::vector<std::vector<int64_t>> strides_of(const ir::Graph& scheduled) {
  std::vector<std::vector<int64_t>> strides;
  for (const ir::Output& output : scheduled.outputs) {
    std::vector<int64_t> concrete;
    for (const ir::IndexExpr& stride : output.strides) {
      if (!stride.is_const()) {
        // The strides are symbolic, so the caller gets none for this output.
        concrete.clear();
        break;
      }
      concrete.push_back(stride.constant());
    }
    strides.push_back(std::move(concrete));
  }
  return strides;
}

void bind_started(py::module_& exec) {
  py::class_<exec::StartedPlan, std::shared_ptr<exec::StartedPlan>>(exec, "StartedPlan")
      .def("fits", &exec::StartedPlan::fits, py::arg("graph"))
      .def("output_strides", [](const exec::StartedPlan& self) { return strides_of(self.schedule().graph); });
  exec.def(
      "start_workers",
      [](int device_index, size_t count) {
        runtime::Device& device = aten::device_at(device_index);
        const py::gil_scoped_release release;
        const runtime::BinaryStore store = exec::binary_store(settings().cache);
        if (exec::StartedPlan::is_possible(device, store, {})) runtime::start_workers(device, count);
      },
      py::arg("device_index"), py::arg("count"));
  exec.def("start", &start, py::arg("graph"), py::arg("device_index"), py::arg("options"), py::arg("scheduled_at_once"));
}

}  // namespace ocl::python
