// csrc/python/eager_bindings.cpp: connects eager ops with their compiler, which is Python code
// (torch_ocl_compile/eager/compile.py).
#include <torch/csrc/jit/python/pybind_utils.h>

#include "csrc/python/fields.h"
#include "csrc/python/settings.h"
#include "csrc/support/build_id.h"
#include "csrc/torch/eager.h"
#include "csrc/torch/first_use.h"
#include "csrc/torch/tensor_location.h"

namespace ocl::python {

namespace {

constexpr char kTable[] = "eager";  // Name of the table in the cache.

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

/// Imports the compiler at the first call.
std::shared_ptr<aten::Recipe> compile_op(const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                                         const aten::EagerArguments& arguments, aten::KeyLevel level) {
  if (!Py_IsInitialized()) return std::make_shared<aten::Recipe>();
  return in_python([&] {
    const size_t count = op.schema().arguments().size();
    py::list values;
    for (size_t i = 0; i < count; ++i) {
      const c10::IValue& value = stack[stack.size() - count + i];
      // toPyObject would turn a tensor that wraps a number into a number.
      const bool tensor = value.isTensor() && value.toTensor().defined();
      values.append(tensor ? py::cast(value.toTensor()) : torch::jit::toPyObject(value));
    }
    const py::object compiler = py::module_::import("torch_ocl_compile.eager.compile").attr("compile_op");
    return compiler(op.schema().name(), op.schema().overload_name(), values, arguments.same, static_cast<int>(level))
        .cast<std::shared_ptr<aten::Recipe>>();
  });
}

aten::EagerContext context_on(int device) {
  if (!Py_IsInitialized()) return {};
  return in_python([&] {
    const py::object context = py::module_::import("torch_ocl_compile.eager.stored").attr("context");
    const auto [identity, prefix, options] = context(device).cast<std::tuple<std::string, std::string, py::dict>>();
    const std::shared_ptr<cache::KernelCache> cache = settings().cache;
    aten::EagerContext found{identity, plan_options_from(options), exec::binary_store(cache), {}};
    if (cache)
      found.entries = {[cache, prefix = prefix](const std::string& key) { return cache->find(kTable, prefix + key); },
                       [cache, prefix = prefix](const std::string& key, const std::string& entry) {
                         cache->store(kTable, prefix + key, entry);
                       }};
    return found;
  });
}

void set_configure(const py::function& configure) {
  // Never released: it may be called, and could be destroyed, after the interpreter has ended.
  const auto* held = new py::function(configure);
  aten::set_configure([held] {
    if (Py_IsInitialized()) in_python([&] { (*held)(); });
  });
}

void set_before_first_use(const py::function& action) {
  const auto* held =
      new py::function(action);  // Never released: it may be called, and could be destroyed, after the interpreter has ended.
  aten::set_before_first_use([held] {
    if (Py_IsInitialized()) in_python([&] { (*held)(); });
  });
}

py::dict counters() {
  const aten::EagerCounters c = aten::eager_counters();
  py::dict d;
  OCL_ITEMS(c, compiled, from_cache, stored, rejected)
  return d;
}

}  // namespace

void bind_eager(py::module_& m) {
  m.def(
      "compile_eager_ops",
      [](bool on) { aten::set_eager_compiler(on ? aten::EagerCompiler{compile_op, context_on} : aten::EagerCompiler{}); },
      py::arg("on"));
  m.def("set_configure", &set_configure, py::arg("configure"));
  m.def("set_before_first_use", &set_before_first_use, py::arg("action"));
  m.def("build_id", &build_id);
  m.def("eager_counters", &counters);
  m.def("acts_as_size", &aten::acts_as_size, py::arg("argument"));
  m.def(
      "is_wrapped_number", [](const at::Tensor& t) { return t.unsafeGetTensorImpl()->is_wrapped_number(); }, py::arg("tensor"));
  m.def("forget_eager_plans", &aten::forget_eager_plans);
  m.def("never_compile_on_this_thread", &aten::never_compile_on_this_thread);
}

}  // namespace ocl::python
