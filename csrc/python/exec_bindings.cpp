// csrc/python/exec_bindings.cpp: _C.exec functions that compile a graph, run its plan and report what it did.
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <set>

#include "csrc/exec/executor.h"
#include "csrc/exec/fill_plan.h"
#include "csrc/exec/make_plan.h"
#include "csrc/exec/stored_plan.h"
#include "csrc/exec/tune.h"
#include "csrc/python/fields.h"
#include "csrc/python/interruptible.h"
#include "csrc/python/pch.h"
#include "csrc/python/plan_object.h"
#include "csrc/python/plan_report.h"
#include "csrc/python/settings.h"
#include "csrc/runtime/build/build_pool.h"
#include "csrc/runtime/build/build_progress.h"
#include "csrc/runtime/record/history.h"
#include "csrc/schedule/dependence.h"
#include "csrc/schedule/describe.h"
#include "csrc/schedule/offer/offer.h"
#include "csrc/schedule/pipeline.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/eager.h"
#include "csrc/torch/plan_runner.h"
#include "csrc/torch/user_launch.h"

namespace ocl::python {

#define OCL_TAKE(object, name) take(#name, object.name);  // A member that a dict has under its name.

exec::PlanOptions plan_options_from(const py::dict& options) {
  exec::PlanOptions plan_options;
  const auto take = [&options](const char* key, auto& field) {
    if (options.contains(key)) field = options[key].cast<std::decay_t<decltype(field)>>();
  };
  plan_options.label = "graph";
  OCL_EACH(OCL_TAKE, plan_options, label, op, kernel_family, vector_floats, units, choice, tuned, check)
  if (options.contains("disable")) plan_options.disable = names_of(options["disable"].cast<std::string>());
  if (options.contains("kept_weights_mb")) plan_options.most_kept_bytes = options["kept_weights_mb"].cast<int64_t>() << 20;
  take("fuse", plan_options.schedule.fuse);
  take("verify", plan_options.schedule.verify);
  take("debug", plan_options.guard_zones);
  const Settings current = settings();
  plan_options.failed_dir = current.failed_dir;
  plan_options.dump_dir = current.dump_dir;
  return plan_options;
}

std::vector<aten::EagerCall> eager_calls(const std::vector<py::object>& calls) {
  std::vector<aten::EagerCall> made;
  for (const py::object& call : calls) {
    if (py::isinstance<aten::UserLaunch>(call)) {
      const auto launch = call.cast<std::shared_ptr<aten::UserLaunch>>();
      made.push_back([launch](const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>& places) {
        aten::run(*launch, operands, places);
        return std::vector<at::Tensor>();
      });
      continue;
    }
    // Several threads may run the plan at once and share `held`. Python's function may be deleted only while the GIL is held.
    auto held = std::shared_ptr<py::function>(new py::function(call.cast<py::function>()), [](py::function* f) {
      const py::gil_scoped_acquire gil;
      delete f;
    });
    made.push_back([held](const std::vector<at::Tensor>& operands, const std::vector<at::Tensor>&) {
      const py::gil_scoped_acquire gil;
      return (*held)(operands).cast<std::vector<at::Tensor>>();
    });
  }
  return made;
}

namespace {

py::dict build_counters() {
  const runtime::BuildCounters c = runtime::build_counters();
  py::dict d;
  OCL_ITEMS(c, built, by_workers, from_binary, rejected, unkept, build_seconds)
  return d;
}

/// Returns how many objects of each class the process keeps alive.
py::dict live_counts() {
  py::dict d;
  d["plans"] = Live<exec::Plan>::count();
  d["programs"] = Live<runtime::Program>::count();
  d["eager_plans"] = aten::eager_plan_count();
  return d;
}

std::shared_ptr<PyPlan> compile(const ir::Graph& graph, int device_index, const std::vector<py::object>& calls,
                                const py::dict& options, const std::string& graph_key,
                                const std::shared_ptr<exec::StartedPlan>& started) {
  auto result = std::make_shared<PyPlan>();
  const exec::PlanOptions plan_options = result->options = plan_options_from(options);
  result->calls = eager_calls(calls);
  const auto plan = std::make_shared<std::unique_ptr<const exec::Plan>>();
  run_interruptibly([=, cache = settings().cache, &device = aten::device_at(device_index)] {
    *plan = graph_key.empty() ? exec::make_plan(graph, device, exec::binary_store(cache), plan_options, started.get())
                              : exec::find_or_make_plan(graph, graph_key, device, exec::binary_store(cache), plan_options);
  });
  result->executor = std::make_unique<exec::Executor>(std::move(*plan));
  return result;
}

void keep(PyPlan& self, const std::string& graph_key) {
  const py::gil_scoped_release release;
  exec::keep_plan(self.plan(), graph_key, exec::binary_store(settings().cache), self.options);
}

std::vector<at::Tensor> run(PyPlan& self, const py::list& args) {
  const size_t symbol_count = static_cast<size_t>(self.plan().schedule.graph.symbols);
  std::vector<int64_t> symbols;
  std::vector<at::Tensor> inputs;
  inputs.reserve(args.size());
  for (size_t i = 0; i < args.size(); ++i) {
    if (i < symbol_count)
      symbols.push_back(args[i].cast<int64_t>());
    else
      inputs.push_back(args[i].cast<at::Tensor>());
  }
  const py::gil_scoped_release release;
  return aten::run_plan(*self.executor, self.calls, symbols, inputs);
}

py::dict launch_dict(const exec::Launch& launch) {
  const codegen::KernelSource& source = launch.source;
  py::dict d;
  OCL_ITEMS(source, name, kind, text, local)
  d["groups"] = std::vector<std::string>{source.groups[0].str(), source.groups[1].str(), source.groups[2].str()};
  std::vector<std::string> arguments;
  for (const auto& buffer : source.buffers) arguments.push_back(std::to_string(buffer.buffer) + "+" + buffer.offset.str());
  for (const auto& value : source.ints) arguments.push_back(value.value.str() + (value.wide ? "L" : ""));
  d["arguments"] = arguments;
  OCL_ITEMS(launch, origin, ops)
  d["bytes"] = launch.work.bytes.str();
  d["flops"] = launch.work.flops.str();
  return d;
}

py::list describe(PyPlan& self) {
  py::list result;
  for (const exec::Launch& launch : self.whole().launches) result.append(launch_dict(launch));
  return result;
}

py::dict timings(PyPlan& self) {
  py::dict d;
  d["check_seconds"] = self.plan().check_seconds;
  d["schedule_seconds"] = self.plan().schedule_seconds;
  d["codegen_seconds"] = self.plan().codegen_seconds;
  d["build_seconds"] = self.plan().build_seconds;
  py::list passes;
  for (const schedule::PassTrace& pass : self.plan().passes)
    passes.append(py::make_tuple(pass.name, pass.milliseconds, pass.verified));
  d["passes"] = passes;
  return d;
}

Caps caps_from(const py::dict& d) {
  Caps caps;
  auto take = [&d](const char* key, auto& field) {
    if (d.contains(key)) field = d[key].cast<std::decay_t<decltype(field)>>();
  };
  OCL_EACH(OCL_TAKE, caps, is_cpu, vector_floats, units, local_bytes, local_is_global, kept_output_bytes, max_group_size,
           item_registers, thread_items, fp64, fp16_convert, keeps_negations, extremes_keep_signs, prefetch,
           max_kernel_arg_bytes)
  if (d.contains("kernels"))
    for (const std::string& name : names_of(d["kernels"].cast<std::string>())) caps.kernels.add(name);
  if (d.contains("disable"))
    for (const std::string& name : names_of(d["disable"].cast<std::string>())) caps.kernels.remove(name);
  if (d.contains("matrix")) caps.matrix = matrix_instructions(d["matrix"].cast<std::string>());
  return caps;
}

schedule::Measured measured_from(const std::map<std::string, std::string>& choices, const std::set<std::string>& disabled) {
  schedule::Measured measured;
  measured.choices = choices;
  measured.disabled = disabled;
  return measured;
}

/// Returns (problem, its node as a graph, its candidates). A candidate is (choice, what differs from the first choice of its
/// kernel).
py::list cases_of(const std::vector<exec::TuningCase>& cases) {
  py::list result;
  for (const exec::TuningCase& c : cases) {
    py::list candidates;
    for (const schedule::Candidate& candidate : c.candidates)
      candidates.append(py::make_tuple(candidate.choice, candidate.turned));
    result.append(py::make_tuple(c.problem, py::cast(c.graph), candidates));
  }
  return result;
}

py::list tuning_cases(const ir::Graph& graph, int device_index, const py::dict& options) {
  const Caps caps = exec::caps_for(aten::device_at(device_index), plan_options_from(options));
  std::vector<exec::TuningCase> cases;
  {
    const py::gil_scoped_release release;
    cases = exec::tuning_cases(graph, caps);
  }
  return cases_of(cases);
}

py::dict render(const ir::Graph& graph, const py::dict& caps, bool fuse, const std::map<std::string, std::string>& choices,
                const std::set<std::string>& disabled, bool keeps) {
  exec::PlanOptions options;
  const schedule::Measured measured = measured_from(choices, disabled);
  options.schedule.measured = &measured;
  options.schedule.verify = true;
  options.schedule.fuse = fuse;
  options.most_kept_bytes = keeps ? INT64_MAX : 0;
  const std::unique_ptr<const exec::Plan> plan = exec::render(graph, caps_from(caps), options);
  const schedule::Schedule& schedule = plan->schedule;
  py::dict d;
  d["schedule"] = schedule::str(schedule);
  d["log"] = schedule.log;
  d["graph"] = py::cast(schedule.graph);
  py::list kernels, origins, groups, kept;
  for (const exec::Launch& launch : plan->launches) kernels.append(launch_dict(launch));
  for (const schedule::Group& group : schedule.groups) origins.append(exec::origin_of(schedule, group));
  for (const schedule::Group& group : schedule.groups) groups.append(schedule::nodes_to_evaluate(schedule, group));
  for (const exec::Step& step : plan->steps) kept.append(step.kept);
  d["kernels"] = kernels;
  d["origins"] = origins;
  d["groups"] = groups;  // The nodes of each launch, in order.
  d["kept"] = kept;      // For each launch, whether its results are kept between calls.
  return d;
}

const runtime::LaunchInfo& no_launch() {
  static const runtime::LaunchInfo none;
  return none;
}

/// Ends a recording. Returns one dict per command.
py::list end_recording(int recording) {
  std::vector<runtime::CommandRecord> records;
  {
    const py::gil_scoped_release release;
    records = runtime::end_recording(recording);
  }
  py::list result;
  for (const runtime::CommandRecord& r : records) {
    const bool launch = r.type == runtime::CommandType::kLaunch;
    const runtime::LaunchInfo& info = launch ? *r.info : no_launch();
    py::dict d;
    d["type"] = runtime::name(r.type);
    d["title"] = runtime::title_of(r);
    OCL_ITEMS(info, kernel, kind, origin)
    OCL_ITEMS(r, device, stream)
    OCL_ITEMS(info, global, local, ops, graph, group)
    d["bytes"] = launch ? info.bytes : r.bytes;
    OCL_ITEMS(info, flops, tensor_cores)
    OCL_ITEMS(r, called_ns, returned_ns, queued_ns, start_ns, end_ns)
    result.append(d);
  }
  return result;
}

/// Returns the rows of kernels/kernels.def. "offered" is false for kernels that only other kernels' offers launch.
py::list kernels() {
  py::list list;
  const std::vector<schedule::TemplateRow>& offers = schedule::template_rows();
  for (const KernelRow& row : kernel_rows()) {
    py::dict d, tolerances;
    py::list arguments;
    for (const KernelRow::Checked& checked : row.types) tolerances[name(checked.type)] = checked.tolerance;
    for (const KernelArgument& argument : row.arguments)
      arguments.append(py::make_tuple(argument.name, argument.is_buffer, argument.wide, argument.optional));
    OCL_ITEMS(row, name, family)
    d["level"] = name(row.level);
    d["operation"] = row.operation_name();
    d["base"] = kernel_row(row.base).name;
    d["types"] = tolerances;
    d["files"] = row.files;
    d["offered"] = std::any_of(offers.begin(), offers.end(), [&](const auto& other) { return other.kernel == row.id; });
    d["arguments"] = arguments;
    list.append(d);
  }
  return list;
}

/// Returns what is wrong with a value of the option `disable`, or "".
std::string disable_fault(const std::string& value) {
  KernelSet set;
  try {
    for (const std::string& name : names_of(value)) set.remove(name);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

void bind_exec(py::module_& m) {
  py::module_ e = m.def_submodule("exec", "Plans: compiled graphs and what they did.");
  py::class_<PyPlan, std::shared_ptr<PyPlan>>(e, "Plan")
      .def("run", &run, py::arg("args"))
      .def("keep", &keep, py::arg("graph_key"))
      .def("describe", &describe)
      .def("report", [](PyPlan& self) { return plan_report(*self.executor); })
      .def("timings", &timings)
      .def("output_strides", [](PyPlan& self) { return strides_of(self.plan().schedule.graph); })
      .def("schedule", [](PyPlan& self) { return schedule::str(self.whole().schedule); })
      .def_property_readonly("log", [](PyPlan& self) { return self.whole().schedule.log; })
      .def_property_readonly("arena_bytes", [](PyPlan& self) { return self.executor->state.memory.arena_bytes; })
      .def_property_readonly("launch_count", [](PyPlan& self) { return self.plan().launches.size(); });
  e.def(
      "configure_builds",
      [](int workers, int64_t longest_ms, const std::string& places, const std::string& worker) {
        runtime::set_build_pool(
            {.most_workers = workers, .longest = std::chrono::milliseconds(longest_ms), .worker = worker, .places = places});
      },
      py::arg("workers"), py::arg("longest_ms"), py::arg("places") = "", py::arg("worker") = "");
  e.def("show_build_progress", &runtime::show_build_progress, py::arg("shown"));
  e.def(
      "configure_enqueue_threads",
      [](const std::string& allowed) {
        using runtime::EnqueueThreads;
        runtime::set_enqueue_threads(allowed == "always"  ? EnqueueThreads::kAlways
                                     : allowed == "never" ? EnqueueThreads::kNever
                                                          : EnqueueThreads::kAuto);
      },
      py::arg("allowed"));
  e.def("skip_launches", &exec::skip_launches, py::arg("skipped"));
  bind_cache(e);
  bind_check(e);
  bind_started(e);
  bind_user_kernels(e);
  e.def("kept_bytes", &exec::kept_bytes);
  e.def("build_counters", &build_counters);
  e.def("live_counts", &live_counts);
  e.def("compile", &compile, py::arg("graph"), py::arg("device_index"), py::arg("calls"), py::arg("options"),
        py::arg("graph_key") = "", py::arg("started") = nullptr);
  e.def("render", &render, py::arg("graph"), py::arg("caps"), py::arg("fuse") = true,
        py::arg("choices") = std::map<std::string, std::string>(), py::arg("disabled") = std::set<std::string>(),
        py::arg("keeps") = false);
  e.def("kernels", &kernels);
  e.attr("LARGEST_HEAD_SIZE") = kLargestHeadSize;
  e.def("disable_fault", &disable_fault, py::arg("value"));
  e.def("tuning_cases", &tuning_cases, py::arg("graph"), py::arg("device_index"), py::arg("options"));
  e.def(
      "tuning_cases_for",
      [](const ir::Graph& graph, const py::dict& caps) { return cases_of(exec::tuning_cases(graph, caps_from(caps))); },
      py::arg("graph"), py::arg("caps"));
  e.def(
      "set_measured",
      [](int device, const std::map<std::string, std::string>& choices, const std::set<std::string>& disabled) {
        exec::set_measured(device, measured_from(choices, disabled));
      },
      py::arg("device_index"), py::arg("choices"), py::arg("disabled"));
  e.def("begin_recording", &runtime::begin_recording, py::arg("timing"), py::arg("all_commands") = false);
  e.def("end_recording", &end_recording, py::arg("recording"));
}

}  // namespace ocl::python
