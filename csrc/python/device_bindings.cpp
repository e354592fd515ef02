// csrc/python/device_bindings.cpp: the functions of csrc/torch and csrc/runtime that
// torch_ocl_compile/device/torch_ocl.py uses.
#include "csrc/kernels/profile.h"
#include "csrc/python/fields.h"
#include "csrc/runtime/device/device_facts.h"
#include "csrc/runtime/device/peaks.h"
#include "csrc/runtime/opencl/wrong_runtimes.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/generator.h"
#include "csrc/torch/profiler.h"
#include "csrc/torch/refusals.h"
#include "csrc/torch/tensor_location.h"

namespace ocl::python {

namespace {

py::dict device_properties(int index) {
  const runtime::Device& device = aten::device_at(index);
  const Caps& caps = device.caps();
  py::dict d;
  d["index"] = device.index();
  d["name"] = device.name();
  d["platform_name"] = device.platform_name();
  d["driver"] = device.driver() + (device.profile() ? std::string(", profile ") + device.profile()->name : "");
  d["profile"] = device.profile() ? device.profile()->name : "";
  OCL_ITEMS(caps, is_cpu, max_alloc_bytes, local_bytes, max_group_size, item_registers)
  d["total_memory"] = caps.global_bytes;
  d["multi_processor_count"] = caps.units;
  d["unified_memory"] = caps.unified;
  d["has_fp64"] = aten::has_fp64(device.index());
  d["has_wgmma"] = caps.kernels.has(KernelLevel::k_warpgroup);
  d["has_mma"] = caps.kernels.has(KernelLevel::k_warp);
  d["matrix_instructions"] = caps.matrix == MatrixInstructions::kNone ? "" : matrix_row(caps.matrix).name;
  d["known_fault"] = runtime::known_fault(device.platform_name());
  d["order"] = device.info().order;
  return d;
}

/// Returns the caps that are not among the properties.
py::dict device_probes(int index) {
  const Caps& caps = aten::device_at(index).caps();
  py::dict d;
  OCL_ITEMS(caps, vector_floats, base_align_bytes, max_kernel_arg_bytes, fp16_convert, keeps_negations, extremes_keep_signs,
            prefetch, queue_priorities, queue_times, marker_times, local_is_global, address_bits, unrestricted_buffers)
  return d;
}

py::dict device_facts(int index) {
  py::dict found;
  for (const auto& [name, value] : runtime::device_facts(aten::device_at(index)))
    std::visit([&, key = py::str(name)](const auto& v) { found[key] = v; }, value);
  return found;
}

void bind_refusals(py::module_& m) {
  using aten::Refused;
  py::class_<Refused> refused(m, "Refused");
  py::enum_<Refused::Place>(refused, "Place").value("OUTSIDE", Refused::Place::kOutside).value("GRAPH", Refused::Place::kGraph);
  refused
      .def(py::init<std::string, std::string, Refused::Place>(), py::arg("op"), py::arg("reason"), py::arg("place"))
          OCL_READ(Refused, op, reason, place)
      .def("count", [](const Refused& self) { return aten::count(self); })
      .def(py::pickle([](const Refused& r) { return py::make_tuple(r.op, r.reason, r.place); },
                      [](const py::tuple& t) {
                        return Refused{t[0].cast<std::string>(), t[1].cast<std::string>(), t[2].cast<Refused::Place>()};
                      }));
  m.def("refusals", [] {
    std::vector<std::pair<Refused, int64_t>> rows;
    for (const auto& row : aten::refusals()) rows.emplace_back(row);
    return rows;
  });
  m.def("fallback_counts", &aten::fallback_counts);
  m.def("eager_reasons", &aten::eager_reasons);
  m.def("reset_fallback_counts", &aten::reset_fallback_counts);
  m.def("set_fallback_warnings", &aten::set_fallback_warnings, py::arg("on"));
  m.def("set_fallback_forbidden", &aten::set_fallback_forbidden, py::arg("on"));
}

py::dict profile_dict(const Profile& row) {
  py::dict d;
  OCL_ITEMS(row, name, device, max_group_size, least_granted, local_bytes, local_is_global, subgroup_sizes, max_alloc_bytes,
            max_kernel_arg_bytes, address_bits, exact_division, source)
  d["multi_processor_count"] = row.units;
  d["has_fp64"] = row.fp64;
  d["has_fp16"] = row.fp16;
  d["total_memory"] = row.global_bytes;
  d["unified_memory"] = row.unified;
  return d;
}

}  // namespace

void bind_device(py::module_& m) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  m.def("set_device_sources", &aten::set_device_sources, py::arg("selection"), py::arg("vendor_libraries"), py::arg("profile"),
        py::arg("library"));
  m.def("set_device_fault", &aten::set_device_fault, py::arg("fault"));
  m.def("allow_wrong_runtimes", &runtime::allow_wrong_runtimes, py::arg("allowed"));
  m.def("devices_ready", &aten::devices_ready);
  m.def("end_devices", &runtime::end_devices, Unlocked());
  m.def("device_count", &aten::device_count, Unlocked());
  m.def("device_problems", &aten::device_problems, Unlocked());
  m.def("require_device", [](int index) { aten::device_at(index); }, py::arg("index"), Unlocked());
  m.def("device_properties", &device_properties, py::arg("index"));
  m.def("device_probes", &device_probes, py::arg("index"));
  m.def("device_facts", &device_facts, py::arg("index"));
  m.def("describe_device", [](int index) { return aten::device_at(index).describe(); }, py::arg("index"));
  m.def("profiles", [] {
    py::list rows;
    for (const Profile& row : profiles()) rows.append(profile_dict(row));
    return rows;
  });
  m.def("in_bad_fork", &aten::in_bad_fork);
  m.def("register_profilers", [] {
    aten::register_profiler();
    aten::register_profiler_markers();
  });
  m.def("used_by_other_threads", &aten::used_by_other_threads);
  m.def("pretend_no_fp64", &aten::pretend_no_fp64, py::arg("index"), py::arg("on"));

  m.def(
      "measure_peaks",
      [](int index) {
        const runtime::Peaks peaks = runtime::measure_peaks(aten::device_at(index));
        return std::make_pair(peaks.bytes_per_second, peaks.flops_per_second);
      },
      py::arg("index"), Unlocked());

  m.def("synchronize", [](int index) { aten::device_at(index).synchronize(); }, py::arg("index"), Unlocked());

  m.def("default_generator", [](int index) { return aten::default_generator(index); }, py::arg("index"));
  m.def("seed_default_generators", &aten::seed_default_generators, py::arg("seed"));
  m.def("reserve_philox", &aten::reserve_philox, py::arg("index"), py::arg("count"));

  bind_refusals(m);
  m.def("set_sdp_choice", &aten::set_sdp_choice, py::arg("choice"));
  m.def(
      "tensor_location",
      [](const at::Tensor& tensor) {
        const runtime::Location where = aten::at_boundary([&] { return aten::location(tensor); });
        return std::make_pair(reinterpret_cast<uintptr_t>(where.mem), where.offset_bytes);
      },
      py::arg("tensor"));
}

}  // namespace ocl::python
