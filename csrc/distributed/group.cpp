// csrc/distributed/group.cpp: starts and ends a group, and turns calls into jobs. The collectives are in collectives.cpp.
#include "csrc/distributed/group.h"

#include <algorithm>
#include <utility>

#include "csrc/torch/device_state.h"
#include "csrc/torch/errors.h"

namespace ocl::distributed {

Group::Group(c10::intrusive_ptr<c10d::Backend> gloo, c10::intrusive_ptr<c10d::Store> store, RankNames names,
             std::chrono::milliseconds timeout, const NcclSettings& nccl)
    : c10d::Backend(names.rank, names.size),
      gloo_(std::make_shared<Engine>(std::move(gloo), store, names)),
      options_(c10::make_intrusive<Options>("ocl", timeout)),
      monitored_barrier_(store, names) {
  options_->group_name = names.group;
  aten::at_boundary([&] {
    NcclStart start = start_nccl(nccl, store, names, timeout);
    nccl_ = std::move(start.engine);
    transport_ = nccl_ ? start.text : "gloo (not NCCL: " + start.text + ")";
    gloo_->start();
  });
}

Group::~Group() { shutdown(); }

void Group::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  gloo_->set_timeout(timeout);
  if (nccl_) nccl_->set_timeout(timeout);
}

c10d::ErrorType Group::getError() {
  const bool failed = gloo_->failed() || (nccl_ && nccl_->failed());
  return failed ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

void Group::check_usable(const char* title) const {
  gloo_->check_usable(title);
  if (nccl_) nccl_->check_usable(title);
}

void Group::monitoredBarrier(const c10d::BarrierOptions& opts, bool) {
  aten::at_boundary([&] { check_usable("monitored_barrier"); });
  monitored_barrier_.wait(opts.timeout == c10d::kUnsetTimeout ? options_->timeout : opts.timeout);
}

void Group::abort() {
  const std::string reason = "the process group was aborted";
  gloo_->abort(reason);
  if (nccl_) nccl_->abort(reason);
}

void Group::shutdown() {
  if (nccl_) nccl_->shut_down();
  gloo_->shut_down();
}

void Group::startCoalescing() {
  coalescing_ = true;
  coalesced_.clear();
}

Group::WorkPtr Group::endCoalescing() {
  coalescing_ = false;
  aten::at_boundary([&] {
    if (nccl_) nccl_->submit(std::exchange(coalesced_jobs_, {}));
  });
  return c10::make_intrusive<JointWork>(rank_, std::exchange(coalesced_, {}));
}

namespace {

void check_tensors(const char* title, const std::vector<at::Tensor>& tensors) {
  const runtime::Device* device = nullptr;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.device().is_privateuseone())
      fail(ErrorKind::kConfig, std::string(title) + ": the group `ocl` got a tensor on " + tensor.device().str() +
                                   ".\n  do: move it to an ocl device, or make the group with "
                                   "init_process_group(\"cpu:gloo,ocl:ocl\")");
    const runtime::Device* its = &aten::device_at(tensor.device().index());
    if (device != nullptr && its != device)
      fail(ErrorKind::kConfig, std::string(title) + ": tensors of one call are on ocl:" + std::to_string(device->index()) +
                                   " and ocl:" + std::to_string(its->index()) + ".\n  do: move them to one device");
    device = its;
    if (tensor.layout() != at::kStrided || !tensor.is_non_overlapping_and_dense())
      fail(ErrorKind::kConfig, std::string(title) +
                                   ": tensors must be dense and must not overlap themselves.\n"
                                   "  do: call .contiguous() first");
  }
}

}  // namespace

void Group::check(const char* title, const Tensors& tensors) const {
  aten::at_boundary([&] { check_tensors(title, tensors); });
}

namespace {

/// Returns the tensors that a call reads only. If there are none, it returns all tensors.
std::vector<at::Tensor> inputs_of(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& outputs) {
  std::vector<at::Tensor> inputs = tensors;
  std::erase_if(inputs, [&](const at::Tensor& tensor) {
    return std::any_of(outputs.begin(), outputs.end(), [&](const at::Tensor& output) { return tensor.is_same(output); });
  });
  return inputs.empty() ? tensors : inputs;
}

}  // namespace

bool Group::goes_to_nccl(const Call& call, const runtime::Device* device) const {
  if (!nccl_ || !call.nccl) return false;
  if (device != nullptr && device != &nccl_->device())
    fail(ErrorKind::kConfig, std::string(call.title) +
                                 ": this group uses NCCL on ocl:" + std::to_string(nccl_->device().index()) +
                                 ", and the tensors are on ocl:" + std::to_string(device->index()) +
                                 ".\n  do: call torch.ocl.set_device() before init_process_group()");
  return true;
}

Group::WorkPtr Group::submit(Call call) {
  return aten::at_boundary([&]() -> WorkPtr {
    check_usable(call.title);
    auto job = std::make_shared<Job>();
    if (!call.tensors.empty()) job->device = &aten::device_at(call.tensors.front().device().index());
    const bool nccl = goes_to_nccl(call, job->device);
    if (nccl) job->device = &nccl_->device();
    job->tensors = call.tensors;
    job->lane = call.lane;
    job->pieces = call.pieces;
    job->make = std::move(call.make);
    job->nccl = std::move(call.nccl);
    job->has_source = call.type == c10d::OpType::RECVANYSOURCE;
    job->work = c10::make_intrusive<GroupWork>(rank_, call.type, call.title, ++number_, job->device,
                                               inputs_of(call.tensors, call.outputs), std::move(call.outputs), call.host_waits);
    if (size_ == 1 && call.alone)
      complete_alone(*job, *call.alone);
    else if (nccl && coalescing_)
      coalesced_jobs_.push_back(job);
    else
      (nccl ? static_cast<Transport&>(*nccl_) : *gloo_).submit({job});
    if (coalescing_) coalesced_.push_back(job->work);
    return job->work;
  });
}

}  // namespace ocl::distributed
