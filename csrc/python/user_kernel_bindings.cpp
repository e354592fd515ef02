// csrc/python/user_kernel_bindings.cpp: _C.exec.UserKernel and UserLaunch: kernels that the user wrote.
#include "csrc/codegen/kernel_files.h"
#include "csrc/python/pch.h"
#include "csrc/python/settings.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/user_launch.h"

namespace ocl::python {
namespace {

using Sizes = std::array<size_t, 3>;

/// Converts an argument of a launch. An int is the position of a tensor that is read, [int] of a tensor that is written. bytes
/// are a number. (n,) stands for n bytes of local memory.
aten::LaunchArgument argument_from(const py::handle& value) {
  if (py::isinstance<py::bytes>(value)) return value.cast<std::string>();
  if (py::isinstance<py::tuple>(value)) return exec::LocalMemory{value.cast<py::tuple>()[0].cast<size_t>()};
  if (py::isinstance<py::list>(value)) return aten::TensorSlot{value.cast<py::list>()[0].cast<int>(), true};
  return aten::TensorSlot{value.cast<int>(), false};
}

std::shared_ptr<exec::UserKernel> build(int device, const std::string& name, const std::string& text,
                                        const std::string& where) {
  const py::gil_scoped_release release;
  const Settings current = settings();
  return std::make_shared<exec::UserKernel>(aten::device_at(device), runtime::KernelText{name, text, where, {0, 0, 0}},
                                            exec::binary_store(current.cache), current.failed_dir);
}

std::shared_ptr<aten::UserLaunch> make_launch(std::shared_ptr<exec::UserKernel> kernel, const std::string& op,
                                              const py::list& arguments, const Sizes& global, const Sizes& local,
                                              const std::vector<std::vector<int64_t>>& strides,
                                              const std::vector<int64_t>& result_bytes,
                                              const std::vector<std::pair<int, int>>& copies) {
  std::vector<aten::LaunchArgument> converted;
  for (const py::handle& argument : arguments) converted.push_back(argument_from(argument));
  return std::make_shared<aten::UserLaunch>(
      aten::UserLaunch{std::move(kernel), op, std::move(converted), global, local, strides, result_bytes, copies});
}

}  // namespace

void bind_user_kernels(py::module_& e) {
  e.def("kernel_file", &codegen::kernel_file, py::arg("name"));
  py::class_<exec::UserKernel, std::shared_ptr<exec::UserKernel>>(e, "UserKernel")
      .def(py::init(&build), py::arg("device_index"), py::arg("name"), py::arg("text"), py::arg("where"))
      .def_property_readonly("most_items", &exec::UserKernel::most_items)
      .def_property_readonly("required_local", &exec::UserKernel::required_local);
  py::class_<aten::UserLaunch, std::shared_ptr<aten::UserLaunch>>(e, "UserLaunch")
      .def(py::init(&make_launch), py::arg("kernel"), py::arg("op"), py::arg("arguments"), py::arg("global_size"),
           py::arg("local_size"), py::arg("strides") = std::vector<std::vector<int64_t>>(),
           py::arg("result_bytes") = std::vector<int64_t>(), py::arg("copies") = std::vector<std::pair<int, int>>())
      .def(
          "run", [](const aten::UserLaunch& launch, const std::vector<at::Tensor>& tensors) { aten::run(launch, tensors, {}); },
          py::arg("tensors"), py::call_guard<py::gil_scoped_release>());
}

}  // namespace ocl::python
