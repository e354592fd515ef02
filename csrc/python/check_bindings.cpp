// csrc/python/check_bindings.cpp: the functions of _C.exec with which torch_ocl_compile/compile/check.py checks kernels. They
// show a plan's steps and memory while it runs, and launch single kernels.
#include <torch/csrc/Exceptions.h>

#include <memory>

#include "csrc/checks/check_text.h"
#include "csrc/checks/device_check.h"
#include "csrc/checks/quick_check.h"
#include "csrc/exec/executor.h"
#include "csrc/exec/launch_alone.h"
#include "csrc/exec/observers.h"
#include "csrc/python/fields.h"
#include "csrc/python/pch.h"
#include "csrc/python/plan_object.h"
#include "csrc/python/settings.h"
#include "csrc/runtime/opencl/wrong_runtimes.h"
#include "csrc/runtime/queues/queue.h"
#include "csrc/schedule/dependence.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/plan_runner.h"
#include "csrc/torch/tensor_location.h"

namespace ocl::python {
namespace {

using exec::BufferSource;

/// A plan as its checker sees it. Python may keep this object longer than the plan exists; `state` is null from then on. Sizes
/// and memory are known only during a run.
struct WatchedPlan {
  const exec::RunState* state = nullptr;
  const exec::RunMemory* memory = nullptr;

  const exec::Plan& get() const {
    OCL_ASSERT(state != nullptr, "the plan of a check is gone");
    return state->plan;
  }
  const exec::RunState& running() const {
    OCL_ASSERT(state != nullptr && memory != nullptr, "the plan of a check is not running");
    return *state;
  }
  bool in_memory(ir::BufferId b) const {
    return get().schedule.placements.at(static_cast<size_t>(b)).kind != schedule::Placement::Kind::kNowhere;
  }
  char* address(ir::BufferId b) const {
    return in_memory(b) ? exec::address_of(running(), *memory, exec::source_of(get(), b)) : nullptr;
  }
};

/// Returns a host tensor with a copy of device memory.
at::Tensor copied(const WatchedPlan& watched, const char* address, int64_t bytes) {
  at::Tensor host = at::empty({bytes}, at::device(at::kCPU).dtype(at::kByte));
  if (bytes == 0) return host;
  void* target = host.mutable_data_ptr();
  const py::gil_scoped_release release;
  runtime::Device& device = *watched.get().device;
  const runtime::Location at = device.allocator().resolve(address);
  runtime::Queue& queue = device.queue(watched.memory->stream);
  queue.read(at.mem, at.offset_bytes, target, static_cast<size_t>(bytes), /*blocking=*/true);
  queue.finish();
  return host;
}

py::dict step_dict(const exec::Plan& plan, size_t position) {
  const schedule::Group& group = plan.schedule.groups[position];
  const exec::Step& step = plan.steps[position];
  py::dict d;
  std::vector<ir::BufferId> read;
  for (const ir::NodeId node : group.nodes())
    for (const ir::BufferId b : schedule::buffers_read(plan.schedule, node)) read.push_back(b);
  py::list ops;  // The ops of the nodes in order. Before each node come the ops that were inlined into it.
  for (const ir::NodeId id : group.nodes()) {
    const ir::Node& node = plan.schedule.graph.nodes[id];
    for (const ir::Origin& origin : node.inlined) ops.append(py::make_tuple(origin.op, origin.source));
    ops.append(py::make_tuple(node.origin.op, node.origin.source));
  }
  d["ops"] = ops;
  d["nodes"] = schedule::nodes_to_evaluate(plan.schedule, group);
  d["reads"] = read;
  d["origin"] = exec::origin_of(plan.schedule, group);
  d["launched"] = step.launch != ir::kNone;
  if (step.launch == ir::kNone) return d;
  const exec::Launch& launch = plan.launches[step.launch];
  const bool is_template = group.kind == schedule::GroupKind::kTemplate;
  d["kernel"] = launch.source.name;
  OCL_ITEMS(launch.source, kind, text)
  d["template"] = is_template ? std::string(kernel_row(group.launch.kernel).name) : std::string();
  d["level"] = is_template ? std::string(name(kernel_row(group.launch.kernel).level)) : std::string();
  d["main"] = group.main;
  return d;
}

py::list steps(const WatchedPlan& watched) {
  py::list result;
  for (size_t i = 0; i < watched.get().steps.size(); ++i) result.append(step_dict(watched.get(), i));
  return result;
}

/// Returns the arguments of a launch as a dict for launch_alone. It has the addresses of memory, which the caller replaces by
/// regions.
py::dict launch_dict(const WatchedPlan& watched, int position) {
  const exec::RunState& state = watched.running();
  const auto index = static_cast<size_t>(watched.get().steps.at(static_cast<size_t>(position)).launch);
  const exec::Launch& launch = watched.get().launches.at(index);
  const exec::LaunchState& prepared = state.launches[index];
  py::dict d;
  py::list pointers, ints;
  for (size_t i = 0; i < launch.buffers.size(); ++i) {
    const BufferSource& source = launch.buffers[i];
    py::dict pointer;
    pointer["slot"] = source.slot;
    pointer["address"] = reinterpret_cast<uintptr_t>(exec::address_of(state, *watched.memory, source));
    pointer["bytes"] = exec::extent_bytes(state, source);
    pointer["offset"] = prepared.offsets[i];
    pointer["element_bytes"] = source.element_bytes;
    pointer["scratch"] = source.kind == BufferSource::Kind::kScratch;
    pointers.append(pointer);
  }
  for (const codegen::IntArg& argument : launch.source.ints)
    ints.append(py::make_tuple(argument.slot, exec::value_of(state, argument.value), argument.wide));
  d["pointers"] = pointers;
  d["ints"] = ints;
  d["global"] = prepared.global;
  d["local"] = launch.source.local;
  d["empty"] = prepared.empty;
  return d;
}

/// An observer that calls a Python object with the methods begin, before, after and end.
class PythonObserver final : public exec::Observer {
 public:
  PythonObserver(std::shared_ptr<WatchedPlan> watched, py::object checker)
      : watched_(std::move(watched)), checker_(std::move(checker)) {}
  PythonObserver(const PythonObserver&) = delete;
  PythonObserver& operator=(const PythonObserver&) = delete;
  ~PythonObserver() override {
    watched_->state = nullptr;
    if (!Py_IsInitialized()) {
      checker_.release();  // Python's memory is gone.
      return;
    }
    const py::gil_scoped_acquire gil;
    checker_ = py::object();
  }
  void begin(const exec::RunMemory& memory) override {
    watched_->memory = &memory;
    call([&] { checker_.attr("begin")(); });
  }
  void before(int step) override {
    call([&] { checker_.attr("before")(step); });
  }
  void after(int step) override {
    call([&] { checker_.attr("after")(step); });
  }
  void end() override {
    call([&] { checker_.attr("end")(); });
    watched_->memory = nullptr;
  }

 private:
  template <class Body>
  void call(const Body& body) {
    const py::gil_scoped_acquire gil;
    try {
      body();
    } catch (py::error_already_set& error) {
      watched_->memory = nullptr;  // The run ends with this error.
      error.restore();
      python_error raised;
      raised.persist();
      throw raised;
    }
  }

  std::shared_ptr<WatchedPlan> watched_;
  py::object checker_;
};

void set_check_factory(const py::function& factory) {
  const auto* held = new py::function(factory);  // Never released: it may be called after the interpreter has ended.
  exec::set_check_factory([held](const exec::RunState& state) -> std::shared_ptr<exec::Observer> {
    if (!Py_IsInitialized()) return nullptr;
    const py::gil_scoped_acquire gil;
    auto watched = std::make_shared<WatchedPlan>();
    watched->state = &state;
    py::object checker = (*held)(watched);
    return std::make_shared<PythonObserver>(std::move(watched), std::move(checker));
  });
}

void launch_alone(int device, const py::dict& described, const std::vector<at::Tensor>& regions) {
  exec::LoneLaunch launch;
  launch.name = described["name"].cast<std::string>();
  launch.text = described["text"].cast<std::string>();
  launch.global = described["global"].cast<std::array<size_t, 3>>();
  launch.local = described["local"].cast<std::array<size_t, 3>>();
  for (const py::handle item : described["pointers"]) {
    const auto [slot, region, offset, element_bytes] = item.cast<std::tuple<int, int, int64_t, int>>();
    launch.pointers.push_back({slot, region, offset, element_bytes});
  }
  for (const py::handle item : described["ints"]) {
    const auto [slot, value, wide] = item.cast<std::tuple<int, int64_t, bool>>();
    launch.ints.push_back({slot, value, wide});
  }
  for (const at::Tensor& region : regions) {
    OCL_ASSERT(region.is_cpu() && region.is_contiguous(), "a region is no contiguous CPU tensor");
    launch.regions.push_back({region.mutable_data_ptr(), static_cast<size_t>(region.nbytes())});
  }
  const Settings current = settings();
  const py::gil_scoped_release release;
  exec::launch_alone(aten::device_at(device), launch, exec::binary_store(current.cache), current.failed_dir);
}

checks::CheckedKernel checked_kernel(const runtime::Device& device, const std::string& kernel, const std::string& type) {
  for (const checks::CheckedKernel& found : checks::kernels_to_check(device))
    if (kernel_row(found.id).name == kernel && name(found.type) == type) return found;
  fail(ErrorKind::kConfig, "no kernel " + kernel + " is checked for " + type + " on " + device.describe());
}

/// Returns (kernel, level, type) of each check.
std::vector<std::tuple<std::string, std::string, std::string>> kernels_to_check(int device) {
  std::vector<std::tuple<std::string, std::string, std::string>> list;
  for (const checks::CheckedKernel& found : checks::kernels_to_check(aten::device_at(device)))
    list.emplace_back(kernel_row(found.id).name, name(kernel_row(found.id).level), name(found.type));
  return list;
}

std::string fault_of_kernel(int device, const std::string& kernel, const std::string& type) {
  const Settings current = settings();
  const py::gil_scoped_release release;
  runtime::Device& on = aten::device_at(device);
  return checks::fault_of_kernel(on, exec::binary_store(current.cache), checked_kernel(on, kernel, type));
}

py::dict described(const checks::CheckCase& check) {
  const auto numbers = [](const auto& values) {
    py::list list;
    for (const auto& value : values) std::visit([&](auto x) { list.append(py::make_tuple(x, sizeof(x) == 8)); }, value);
    return list;
  };
  py::list inputs;
  for (const auto& input : check.inputs) {
    const py::bytes bytes(reinterpret_cast<const char*>(input.bytes.data()), input.bytes.size());
    inputs.append(py::make_tuple(input.pack.empty() ? py::object(bytes) : described(input.pack[0]), input.offset));
  }
  py::dict d, knobs;
  for (const auto& knob : check.knobs) knobs[py::str(knob.name)] = py::make_tuple(knob.options, knob.options[knob.taken]);
  d["kernel"] = kernel_row(check.kernel).name;
  d["knobs"] = knobs;
  d["text"] = checks::text_of(check);
  d["defines"] = check.defines;
  d["inputs"] = inputs;
  d["arguments"] = numbers(check.arguments);
  d["last"] = numbers(check.last);
  OCL_ITEMS(check, groups, local)
  OCL_ITEMS(check.results, exact, sizes)
  d["outputs"] = check.written();
  d["tolerance"] = check.tolerance;
  return d;
}

/// Returns cases for one type of a kernel. matrix: what kernels of the level subgroup_matrix multiply with. set: a name of
/// schedule::CaseSet.
std::vector<checks::CheckCase> cases_of(const std::string& kernel, const std::string& type, MatrixInstructions matrix,
                                        const std::string& set) {
  using schedule::CaseSet;
  const CaseSet made = set == "tiles" ? CaseSet::kTiles : set == "edges" ? CaseSet::kEdges : CaseSet::kSample;
  for (const KernelRow& row : kernel_rows())
    for (const KernelRow::Checked& checked : row.types)
      if (row.name == kernel && name(checked.type) == type) return schedule::check_cases(row, checked.type, matrix, made);
  return {};
}

/// only: the number of a single case, or -1 for all. filled: with operands and expected results.
py::list check_cases(const std::string& kernel, const std::string& type, int only, const std::string& matrix,
                     const std::string& set, bool filled) {
  py::list list;
  int number = 0;
  for (checks::CheckCase& check : cases_of(kernel, type, matrix_instructions(matrix), set)) {
    if (number++ != only && only >= 0) continue;
    if (filled) check.fill(check);
    list.append(described(check));
  }
  return list;
}

/// Runs a case in this process, or in a build worker. Returns what is wrong, or "".
std::string fault_of_case(int device_index, const std::string& kernel, const std::string& type, size_t number,
                          const std::string& set, bool in_worker) {
  const py::gil_scoped_release release;
  runtime::Device& device = aten::device_at(device_index);
  const std::vector<checks::CheckCase> cases = cases_of(kernel, type, device.caps().matrix, set);
  return checks::fault_of_case(device, cases.at(number), in_worker);
}

}  // namespace

void bind_check(py::module_& e) {
  e.def("kernels_to_check", &kernels_to_check, py::arg("device_index"));
  e.def(
      "probe_driver", [](int device) { return checks::probe_driver(aten::device_at(device)); }, py::arg("device_index"),
      py::call_guard<py::gil_scoped_release>());
  e.def(
      "tried_where", [](int device) { return runtime::tried_where(aten::device_at(device).info()); }, py::arg("device_index"));
  e.def("fault_of_kernel", &fault_of_kernel, py::arg("device_index"), py::arg("kernel"), py::arg("type"));
  e.def("check_cases", &check_cases, py::arg("kernel"), py::arg("type"), py::arg("only") = -1, py::arg("matrix") = "mfma4",
        py::arg("set") = "sample", py::arg("filled") = true);
  e.def("matrix_instructions", [] {
    std::vector<std::pair<std::string, bool>> all;  // With whether they multiply floats.
    for (const MatrixRow& row : kMatrixRows)
      if (row.id != MatrixInstructions::kMma8) all.emplace_back(row.name, row.floats);
    return all;
  });
  e.def("fault_of_case", &fault_of_case, py::arg("device_index"), py::arg("kernel"), py::arg("type"), py::arg("number"),
        py::arg("set"), py::arg("in_worker") = false);
  e.def("set_check_factory", &set_check_factory, py::arg("factory"));
  e.def("launch_alone", &launch_alone, py::arg("device_index"), py::arg("launch"), py::arg("regions"));
  py::class_<WatchedPlan, std::shared_ptr<WatchedPlan>>(e, "WatchedPlan")
      .def_property_readonly("label", [](const WatchedPlan& w) { return w.get().label; })
      .def_property_readonly("op", [](const WatchedPlan& w) { return w.get().op; })
      .def_property_readonly("device", [](const WatchedPlan& w) { return w.get().device->index(); })
      .def_property_readonly("device_name", [](const WatchedPlan& w) { return w.get().device->describe(); })
      .def("graph", [](const WatchedPlan& w) { return w.get().schedule.graph; })
      .def("steps", &steps)
      .def(
          "text",
          [](const WatchedPlan& w, size_t step) {
            const schedule::Schedule& schedule = w.get().schedule;
            ir::Graph part = schedule.graph;
            part.nodes.clear();
            part.outputs.clear();
            for (const ir::NodeId node : schedule.groups.at(step).nodes()) part.nodes.push_back(schedule.graph.nodes[node]);
            return part.str();
          },
          py::arg("step"))
      .def("in_memory", &WatchedPlan::in_memory, py::arg("buffer"))
      .def("symbols", [](const WatchedPlan& w) { return w.running().symbols; })
      .def(
          "address", [](const WatchedPlan& w, int buffer) { return reinterpret_cast<uintptr_t>(w.address(buffer)); },
          py::arg("buffer"))
      .def(
          "shape",
          [](const WatchedPlan& w, int buffer) {
            const ir::Buffer& b = w.get().schedule.graph.buffers.at(static_cast<size_t>(buffer));
            return py::make_tuple(exec::values_of(w.running(), b.sizes), exec::values_of(w.running(), *b.strides),
                                  aten::scalar_type(b.dtype));
          },
          py::arg("buffer"))
      .def("launch", &launch_dict, py::arg("step"))
      .def(
          "copied",
          [](const WatchedPlan& w, uintptr_t address, int64_t bytes) {
            return copied(w, reinterpret_cast<const char*>(address), bytes);
          },
          py::arg("address"), py::arg("bytes"));
}

}  // namespace ocl::python
