// csrc/python/distributed_bindings.cpp: _C.distributed, with which torch_ocl_compile/device/distributed.py makes groups.
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "csrc/distributed/group.h"
#include "csrc/distributed/pieces.h"
#include "csrc/distributed/threads.h"
#include "csrc/python/pch.h"

namespace ocl::python {

namespace {

/// Adds the backend `ocl` to a registered torch group that has gloo for the CPU. The group is passed by its name, because torch
/// and this module may be built with different versions of pybind11, which do not know each other's classes.
void add_backend(const std::string& registered_name, const std::string& group, const std::vector<int64_t>& global_ranks,
                 int64_t timeout_ms, const std::string& nccl, const std::vector<std::string>& nccl_files) {
  const auto host = c10d::resolve_process_group(registered_name);
  distributed::RankNames names{group, host->getRank(), host->getSize(), global_ranks};
  using distributed::NcclUse;
  const NcclUse use = nccl == "0" ? NcclUse::kNever : nccl == "1" ? NcclUse::kRequested : NcclUse::kIfPossible;
  auto backend = c10::make_intrusive<distributed::Group>(host->getBackend(c10::kCPU), host->getStore(), std::move(names),
                                                         std::chrono::milliseconds(timeout_ms),
                                                         distributed::NcclSettings{use, nccl_files});
  host->setBackend(c10::kPrivateUse1, c10d::ProcessGroup::BackendType::CUSTOM,
                   c10::intrusive_ptr<c10d::Backend>(std::move(backend)));
}

bool uses_nccl(const std::string& registered_name) {
  const auto backend = c10d::resolve_process_group(registered_name)->getBackend(c10::kPrivateUse1);
  const auto* group = dynamic_cast<const distributed::Group*>(backend.get());
  return group != nullptr && group->uses_nccl();
}

std::string transport(const std::string& registered_name) {
  const auto backend = c10d::resolve_process_group(registered_name)->getBackend(c10::kPrivateUse1);
  const auto* group = dynamic_cast<const distributed::Group*>(backend.get());
  return group != nullptr ? group->transport() : "";
}

}  // namespace

void bind_distributed(py::module_& m) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;
  py::module_ d = m.def_submodule("distributed", "The process group of ocl devices.");
  d.def("add_backend", &add_backend, py::arg("registered_name"), py::arg("group"), py::arg("global_ranks"),
        py::arg("timeout_ms"), py::arg("nccl"), py::arg("nccl_files"), Unlocked());
  d.def("uses_nccl", &uses_nccl, py::arg("registered_name"), Unlocked());
  d.def("transport", &transport, py::arg("registered_name"), Unlocked());
  d.def(
      "nccl_ability",
      [](const std::vector<std::string>& files, int device) {
        return distributed::nccl_ability(files, runtime::Device::get(device));
      },
      py::arg("files"), py::arg("device"), Unlocked());
  d.def("end_groups", &distributed::end_transports, Unlocked());
  d.def("set_host_mapping", &distributed::set_host_mapping, py::arg("on"));
  d.def("refuse_threads", &distributed::refuse_threads, py::arg("on"));
}

}  // namespace ocl::python
