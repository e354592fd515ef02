// csrc/python/cuda_bindings.cpp: the functions that device/cuda_exchange.py calls, and links between devices.
#include "csrc/python/pch.h"
#include "csrc/torch/cuda_exchange.h"
#include "csrc/torch/device_copy.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/errors.h"

namespace ocl::python {
namespace {

constexpr const char* kCapsule = "dltensor";  // DLPack's name for a capsule that nobody has consumed yet.

void drop_capsule(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, kCapsule)) return;
  auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, kCapsule));
  managed->deleter(managed);
}

py::object cuda_capsule(const at::Tensor& tensor) {
  DLManagedTensor* managed = nullptr;
  {
    const py::gil_scoped_release release;
    managed = aten::export_to_cuda(tensor);
  }
  PyObject* capsule = PyCapsule_New(managed, kCapsule, &drop_capsule);
  if (capsule == nullptr) {
    managed->deleter(managed);
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::object>(capsule);
}

}  // namespace

void bind_cuda(py::module_& m) {
  m.def("share_new_tensors_with_cuda", &aten::share_new_tensors_with_cuda, py::arg("on"));
  m.def("is_shared_with_cuda", &aten::is_shared_with_cuda, py::arg("tensor"));
  m.def("cuda_capsule", &cuda_capsule, py::arg("tensor"));
  m.def("ocl_device_of_cuda", &aten::ocl_device_of_cuda, py::arg("cuda_index"));
  m.def("ocl_view_of_cuda", &aten::ocl_view_of_cuda, py::arg("ocl_index"), py::arg("cuda_address"), py::arg("owner"));
  m.def("can_access_peer", &aten::can_access_peer, py::arg("device"), py::arg("peer"));
}

}  // namespace ocl::python
