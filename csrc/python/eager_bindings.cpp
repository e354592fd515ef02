// csrc/python/eager_bindings.cpp: connects eager ops with their compiler, which is Python code
// (torch_ocl_compile/eager/compile.py).
#include <torch/csrc/jit/python/pybind_utils.h>

#include "csrc/python/plan_object.h"
#include "csrc/python/settings.h"
#include "csrc/support/build_id.h"
#include "csrc/torch/eager.h"
#include "csrc/torch/first_use.h"
#include "csrc/torch/tensor_location.h"

namespace py = pybind11;

namespace ocl::python {

namespace {

constexpr char kTable[] = "eager";  // Name of the table in the cache.

aten::EagerInput input_from(const py::tuple& t) {
  aten::EagerInput input;
  const auto kind = t[0].cast<std::string>();
  if (kind == "tensor") {
    input.leaf = t[1].cast<int>();
  } else if (kind == "numbers") {
    input.kind = aten::EagerInput::Kind::kNumbers;
    input.leaves = t[1].cast<std::vector<int>>();
    input.dtype = t[2].cast<at::ScalarType>();
  } else {
    input.kind = aten::EagerInput::Kind::kState;
    input.leaf = t[1].cast<int>();
    input.count = t[2].cast<uint64_t>();
  }
  return input;
}

aten::EagerConditions conditions_from(const py::object& made) {
  return {made.attr("symbols").cast<std::vector<std::pair<int, int>>>(), made.attr("sizes").cast<std::vector<ir::IndexExpr>>(),
          made.attr("floats").cast<std::vector<std::pair<int, double>>>()};
}

std::shared_ptr<const aten::EagerPlan> plan_from(const py::object& made) {
  auto eager = std::make_shared<aten::EagerPlan>();
  eager->reason = made.attr("reason").cast<std::string>();
  eager->bad_arguments = made.attr("bad_arguments").cast<bool>();
  if (!eager->reason.empty()) return eager;
  eager->conditions = conditions_from(made.attr("conditions"));
  eager->resizes = made.attr("resizes").cast<decltype(eager->resizes)>();
  if (!eager->resizes.empty()) return eager;
  const auto plan = made.attr("plan").cast<std::shared_ptr<PyPlan>>();
  eager->executor = std::shared_ptr<exec::Executor>(plan, plan->executor.get());
  for (const py::handle input : made.attr("inputs")) eager->inputs.push_back(input_from(input.cast<py::tuple>()));
  eager->symbols = made.attr("symbols").cast<std::vector<std::pair<int, int>>>();
  for (const py::handle value : made.attr("returns")) {
    if (py::isinstance<py::int_>(value))
      eager->returns.push_back({false, {}, value.cast<int64_t>()});
    else
      eager->returns.push_back(
          {value.cast<py::tuple>()[0].cast<bool>(), value.cast<py::tuple>()[1].cast<std::vector<std::pair<bool, int>>>()});
  }
  return eager;
}

aten::CompiledOp compile_op(const py::function& compiler, const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                            const aten::EagerArguments& arguments, aten::KeyLevel level) {
  const size_t count = op.schema().arguments().size();
  py::list values;
  for (size_t i = 0; i < count; ++i) {
    const c10::IValue& value = stack[stack.size() - count + i];
    // toPyObject would turn a tensor that wraps a number into a number.
    const bool tensor = value.isTensor() && value.toTensor().defined();
    values.append(tensor ? py::cast(value.toTensor()) : torch::jit::toPyObject(value));
  }
  const py::object made =
      compiler(op.schema().name(), op.schema().overload_name(), values, arguments.same, static_cast<int>(level));
  return {plan_from(made), made.attr("graph").cast<std::string>(), made.attr("lasting").cast<bool>()};
}

aten::EagerContext context_from(const py::function& context, int device) {
  const auto [identity, prefix, options] = context(device).cast<std::tuple<std::string, std::string, py::dict>>();
  const std::shared_ptr<cache::KernelCache> cache = settings().cache;
  aten::EagerContext found{identity, plan_options_from(options), binary_store(cache), {}};
  if (cache)
    found.entries = {[cache, prefix = prefix](const std::string& key) { return cache->find(kTable, prefix + key); },
                     [cache, prefix = prefix](const std::string& key, const std::string& entry) {
                       cache->store(kTable, prefix + key, entry);
                     }};
  return found;
}

/// Calls Python code from any thread.
template <class Call>
auto in_python(const Call& call) {
  const py::gil_scoped_acquire gil;
  try {
    return call();
  } catch (py::error_already_set& error) {
    // The error is an interrupt, or comes from the compiler or the device. It is thrown on.
    error.restore();
    python_error raised;
    raised.persist();
    throw raised;
  }
}

void set_eager_compiler(const py::object& compiler, const py::object& context) {
  if (compiler.is_none()) return aten::set_eager_compiler({});
  // Never released: both may be called, and could be destroyed, after the interpreter has ended.
  const auto* compile = new py::function(compiler.cast<py::function>());
  aten::EagerCompiler made;
  made.compile = [compile](const c10::OperatorHandle& op, const torch::jit::Stack& stack, const aten::EagerArguments& arguments,
                           aten::KeyLevel level) {
    if (!Py_IsInitialized()) return aten::CompiledOp{std::make_shared<aten::EagerPlan>()};
    return in_python([&] { return compile_op(*compile, op, stack, arguments, level); });
  };
  if (!context.is_none()) {
    const auto* held = new py::function(context.cast<py::function>());
    made.context = [held](int device) {
      if (!Py_IsInitialized()) return aten::EagerContext();
      return in_python([&] { return context_from(*held, device); });
    };
  }
  aten::set_eager_compiler(std::move(made));
}

void set_configure(const py::function& configure) {
  // Never released, as in set_eager_compiler.
  const auto* held = new py::function(configure);
  aten::set_configure([held] {
    if (Py_IsInitialized()) in_python([&] { (*held)(); });
  });
}

void set_before_first_use(const py::function& action) {
  const auto* held = new py::function(action);  // Never released, as in set_eager_compiler.
  aten::set_before_first_use([held] {
    if (Py_IsInitialized()) in_python([&] { (*held)(); });
  });
}

py::dict counters() {
  const aten::EagerCounters c = aten::eager_counters();
  py::dict d;
  d["compiled"] = c.compiled;
  d["from_cache"] = c.from_cache;
  d["stored"] = c.stored;
  d["rejected"] = c.rejected;
  return d;
}

}  // namespace

void bind_eager(py::module_& m) {
  m.def("set_eager_compiler", &set_eager_compiler, py::arg("compiler"), py::arg("context") = py::none());
  m.def("set_configure", &set_configure, py::arg("configure"));
  m.def("set_before_first_use", &set_before_first_use, py::arg("action"));
  m.def("build_id", &build_id);
  m.def("eager_counters", &counters);
  m.def(
      "is_wrapped_number", [](const at::Tensor& t) { return t.unsafeGetTensorImpl()->is_wrapped_number(); }, py::arg("tensor"));
  m.def("forget_eager_plans", &aten::forget_eager_plans);
  m.def("never_compile_on_this_thread", &aten::never_compile_on_this_thread);
}

}  // namespace ocl::python
