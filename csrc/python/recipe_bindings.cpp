// csrc/python/recipe_bindings.cpp: _C.Recipe, and the call of a compiled graph.
#include <torch/csrc/jit/python/pybind_utils.h>

#include "csrc/python/fields.h"
#include "csrc/python/pch.h"
#include "csrc/python/plan_object.h"
#include "csrc/torch/plan_runner.h"
#include "csrc/torch/recipe.h"

namespace ocl::python {

namespace {

using aten::Recipe;

/// True for the ragged size of a jagged tensor.
bool is_ragged(py::handle value) {
  if (PyLong_CheckExact(value.ptr()) || !torch::is_symint(value)) return false;
  const auto size = value.cast<c10::SymInt>();
  return size.is_heap_allocated() && size.toSymNode()->is_nested_int();
}

/// Returns an argument of a graph as C++ reads it. Objects of other classes, and ragged sizes, can only be passed on.
c10::IValue leaf_of(py::handle value) {
  if (THPVariable_Check(value.ptr())) return THPVariable_Unpack(value.ptr());
  if (PyFloat_Check(value.ptr())) return PyFloat_AS_DOUBLE(value.ptr());
  if (PyIndex_Check(value.ptr()) && !is_ragged(value)) return value.cast<int64_t>();
  return {};
}

aten::Leaves leaves_of(const py::list& arguments) {
  aten::Leaves leaves;
  leaves.reserve(arguments.size());
  for (const py::handle value : arguments) leaves.push_back(leaf_of(value));
  return leaves;
}

/// Calls a graph. Empties `arguments`, so that what the caller does not hold is freed at the end of the call at the latest.
/// `run` may empty its leaves too. `run`: sets the inputs of the plan, and returns its outputs.
template <class Run>
py::list call(const Recipe& recipe, const py::list& arguments, const Run& run) {
  aten::Leaves leaves = leaves_of(arguments);
  std::vector<py::object> held(recipe.results.size());  // The arguments that are results.
  for (size_t i = 0; i < held.size(); ++i)
    if (recipe.results[i].kind == Recipe::Result::Kind::kLeaf)
      held[i] = py::reinterpret_borrow<py::object>(arguments[static_cast<size_t>(recipe.results[i].index)]);
  if (PyList_SetSlice(arguments.ptr(), 0, PY_SSIZE_T_MAX, nullptr) != 0) throw py::error_already_set();
  aten::PlanInputs inputs;
  const std::vector<at::Tensor> outputs = run(leaves, inputs);
  py::list results(recipe.results.size());
  for (size_t i = 0; i < recipe.results.size(); ++i) {
    const Recipe::Result& result = recipe.results[i];
    if (result.kind == Recipe::Result::Kind::kLeaf)
      results[i] = held[i];
    else
      results[i] = torch::jit::toPyObject(aten::value_of(result, leaves, inputs, outputs));
  }
  return results;
}

/// True if only functions on the host compute the results.
bool is_empty(const Recipe& recipe) { return recipe.graph.nodes.empty() && recipe.graph.outputs.empty(); }

py::list call_plan(Recipe& recipe, PyPlan& plan, const py::list& arguments) {
  aten::bind_faults(recipe, *plan.plan().device);
  return call(recipe, arguments, [&](aten::Leaves& leaves, aten::PlanInputs& inputs) -> std::vector<at::Tensor> {
    const py::gil_scoped_release release;
    inputs = aten::inputs_of(recipe, leaves, plan.plan().device->index());
    if (is_empty(recipe)) return {};
    leaves.clear();  // `inputs` has all that the plan needs.
    std::vector<at::Tensor> outputs =
        aten::run_plan(*plan.executor, plan.calls, inputs.symbols, inputs.tensors, &inputs.tensors, recipe.faults.size());
    aten::look_for_faults(recipe, plan.plan());
    return outputs;
  });
}

/// Calls a graph that runs in the interpreter. `plan`: an object with the method `run` of a plan.
py::list call_interpreter(const Recipe& recipe, const py::object& plan, const py::list& arguments) {
  return call(recipe, arguments, [&](const aten::Leaves& leaves, aten::PlanInputs& inputs) -> std::vector<at::Tensor> {
    inputs = aten::inputs_of(recipe, leaves, -1);
    if (is_empty(recipe)) return {};
    py::list given;
    for (const int64_t size : inputs.symbols) given.append(size);
    for (const at::Tensor& tensor : inputs.tensors) given.append(tensor);
    return plan.attr("run")(given).cast<std::vector<at::Tensor>>();
  });
}

/// Returns the sizes that the arguments provide. Those after them are computed from these.
std::vector<int64_t> sizes(const Recipe& recipe, const py::list& arguments) {
  const aten::Leaves leaves = leaves_of(arguments);
  std::vector<int64_t> found;
  for (const Recipe::Symbol& symbol : recipe.symbols) {
    if (symbol.leaf >= static_cast<int>(leaves.size())) break;
    found.push_back(symbol.value(leaves));
  }
  return found;
}

void bind_parts(py::class_<Recipe, std::shared_ptr<Recipe>>& recipe) {
  using Source = Recipe::Source;
  using Result = Recipe::Result;
  py::class_<Recipe::Symbol>(recipe, "Symbol") OCL_READ(Recipe::Symbol, leaf, dim, is_stride)
      .def(py::init([](int leaf, int dim, bool is_stride) { return Recipe::Symbol{leaf, dim, is_stride}; }), py::arg("leaf"),
           py::arg("dim") = -1, py::arg("is_stride") = false);
  py::class_<Recipe::Form>(recipe, "Form")
      .def(py::init([](bool is_complex, bool is_conj, bool is_neg) { return Recipe::Form{is_complex, is_conj, is_neg}; }),
           py::arg("is_complex") = false, py::arg("is_conj") = false, py::arg("is_neg") = false);
  const auto indexed = [](Source::Kind kind) { return [kind](int index) { return Source{kind, index}; }; };
  py::class_<Source>(recipe, "Source") OCL_READ(Source, index, count)
      .def_static(
          "tensor",
          [](int index, const Recipe::Form& form) { return Source{Source::Kind::kTensor, index, {}, at::kFloat, 0, form}; },
          py::arg("leaf"), py::arg("form") = Recipe::Form{})
      .def_static("moved", indexed(Source::Kind::kMoved), py::arg("leaf"))
      .def_static("constant", indexed(Source::Kind::kConstant), py::arg("index"))
      .def_static("fault", indexed(Source::Kind::kFault), py::arg("index"))
      .def_static(
          "numbers",
          [](const std::vector<int>& leaves, at::ScalarType dtype) {
            return Source{Source::Kind::kNumbers, -1, leaves, dtype};
          },
          py::arg("leaves"), py::arg("dtype"))
      .def_static(
          "state", [](uint64_t count) { return Source{Source::Kind::kState, -1, {}, at::kFloat, count}; }, py::arg("count"))
      .def_property_readonly("kind", [](const Source& self) {
        constexpr const char* kNames[] = {"tensor", "moved", "constant", "numbers", "state", "fault"};
        return kNames[static_cast<size_t>(self.kind)];
      });
  const auto result = [](Result::Kind kind) { return [kind](int index) { return Result{kind, index}; }; };
  py::class_<Result>(recipe, "Result")
      .def(py::init<>())
      .def_static(
          "output", [](int index, const Recipe::Form& form) { return Result{Result::Kind::kOutput, index, {}, form}; },
          py::arg("index"), py::arg("form") = Recipe::Form{})
      .def_static("input", result(Result::Kind::kInput), py::arg("index"))
      .def_static("leaf", result(Result::Kind::kLeaf), py::arg("index"))
      .def_static(
          "size", [](const ir::IndexExpr& size) { return Result{Result::Kind::kSize, -1, size}; }, py::arg("size"))
      .def_property_readonly("kind",
                             [](const Result& self) {
                               constexpr const char* kNames[] = {"none", "output", "input", "leaf", "size"};
                               return kNames[static_cast<size_t>(self.kind)];
                             })
      .def_readonly("index", &Result::index)
      .def_readonly("expression", &Result::size);
  py::class_<Recipe::Conditions> conditions(recipe, "Conditions");
  py::enum_<Recipe::Conditions::Relation>(conditions, "Relation")
      OCL_VALUES(Recipe::Conditions::Relation, kEqual, kNotEqual, kBelow, kAtMost, kAbove, kAtLeast);
  conditions OCL_WRITE(Recipe::Conditions, symbols, sizes, floats).def(py::init<>());
  py::class_<aten::Formula>(recipe, "Formula")
      .def_static("number", &aten::Formula::number, py::arg("value"))
      .def_static("leaf", &aten::Formula::leaf, py::arg("leaf"))
      .def_static("size", &aten::Formula::size, py::arg("size"))
      .def_static("apply", &aten::Formula::apply, py::arg("name"), py::arg("args"))
      .def(
          "value",
          [](const aten::Formula& self, const std::map<int, double>& leaves, const std::map<int, int64_t>& sizes) {
            return self.value([&](int leaf) { return leaves.at(leaf); }, [&](ir::Symbol s) { return sizes.at(s.index); });
          },
          py::arg("leaves"), py::arg("sizes"));
  py::enum_<Recipe::Kind>(recipe, "Kind")
      .value("PLAN", Recipe::Kind::kPlan)
      .value("RESIZES", Recipe::Kind::kResizes)
      .value("NO_KERNELS", Recipe::Kind::kNoKernels)
      .value("BAD_ARGUMENTS", Recipe::Kind::kBadArguments);
}

}  // namespace

void bind_recipe(py::module_& m) {
  py::class_<Recipe, std::shared_ptr<Recipe>> recipe(m, "Recipe");
  bind_parts(recipe);
  recipe OCL_WRITE(Recipe, reason, sources, symbols, formulas, results, constants, faults, returned, generator, resizes,
                   conditions, lasting, device, label, graph)
      .def(py::init([](Recipe::Kind kind) {
             Recipe made;
             made.kind = kind;
             return made;
           }),
           py::arg("kind"))
      .def(py::pickle([](const Recipe& self) { return py::bytes(aten::entry_of(self)); },
                      [](const py::bytes& entry) { return aten::recipe_from(entry); }))
      .def("call", &call_plan, py::arg("plan"), py::arg("arguments"))
      .def("call", &call_interpreter, py::arg("plan"), py::arg("arguments"))
      .def(
          "set_calls", [](Recipe& self, const std::vector<py::object>& calls) { self.calls = eager_calls(calls); },
          py::arg("calls"))
      .def("size_values", &sizes, py::arg("arguments"));
}

}  // namespace ocl::python
