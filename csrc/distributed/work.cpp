// csrc/distributed/work.cpp: waiting for a collective on a stream or on the host; see work.h.
#include "csrc/distributed/work.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "csrc/runtime/device/device.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/errors.h"

namespace ocl::distributed {
namespace {

using c10::ivalue::Future;

c10::Device torch_device(const runtime::Device& device) {
  return {c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device.index())};
}

}  // namespace

GroupWork::GroupWork(int rank, c10d::OpType type, std::string title, uint64_t number, runtime::Device* device,
                     const std::vector<at::Tensor>& inputs, std::vector<at::Tensor> outputs, bool host_waits)
    : c10d::Work(rank, type, ("ocl:" + title).c_str(), inputs),
      title_(std::move(title)),
      number_(number),
      device_(device),
      outputs_(std::move(outputs)),
      host_waits_(host_waits) {
  std::vector<c10::Device> devices;
  if (device_ != nullptr) devices.push_back(torch_device(*device_));
  future_ = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()), std::move(devices));
}

bool GroupWork::isCompleted() {
  const std::lock_guard lock(mutex_);
  return completed_ && (!done_ || runtime::is_done(done_.get()));
}

bool GroupWork::isSuccess() const {
  const std::lock_guard lock(mutex_);
  return completed_ && !exception_;
}

std::exception_ptr GroupWork::exception() const {
  const std::lock_guard lock(mutex_);
  return exception_;
}

c10::intrusive_ptr<Future> GroupWork::getFuture() {
  if (!waited_ || future_->completed()) return future_;
  std::optional<pybind11::gil_scoped_release> released;
  if (PyGILState_Check()) released.emplace();  // Callbacks of the future may need the GIL.
  future_->wait();
  return future_;
}

int GroupWork::sourceRank() const {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(source_rank_ >= 0, title_, " has no source rank yet: call wait() first");
  return source_rank_;
}

void GroupWork::synchronize() {
  std::shared_ptr<runtime::Signal> signal;
  {
    const std::lock_guard lock(mutex_);
    if (exception_) std::rethrow_exception(exception_);
    if (device_ == nullptr || (completed_ && !done_)) return;
    if (!completed_) {
      aten::at_boundary([&] {
        if (!signal_) signal_ = std::make_shared<runtime::Signal>(device_->info());
        waiting_.insert(&aten::current_queue(device_->index()));
      });
      signal = signal_;
    }
  }
  // The lock is free here, because the observer of waits takes it.
  aten::at_boundary([&] {
    runtime::Queue& queue = aten::current_queue(device_->index());
    if (signal)
      signal->block(queue);
    else if (queue.stream() != done_stream_ && !runtime::is_done(done_.get()))
      queue.wait_for(done_.get());
  });
}

/// Waits for a result on a CPU device for a moment. Runtimes for CPUs wait for the host's events with threads that keep the
/// cores busy, which the communication needs.
void GroupWork::wait_a_moment() {
  constexpr std::chrono::milliseconds kMoment{2};
  if (device_ == nullptr || !device_->caps().is_cpu) return;
  std::unique_lock lock(mutex_);
  cv_.wait_for(lock, kMoment, [&] { return completed_; });
}

bool GroupWork::wait(std::chrono::milliseconds timeout) {
  if (host_waits_ || timeout != kNoTimeout)
    wait_on_host(timeout);
  else
    wait_a_moment();
  synchronize();
  end_record();
  waited_ = true;
  return true;
}

/// Ends the entry in the profile, if it has not been ended.
void GroupWork::end_record() {
  std::function<void()> end;
  {
    const std::lock_guard lock(mutex_);
    end.swap(recordFunctionEndCallback_);
  }
  if (end) end();
}

void GroupWork::wait_on_host(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto done = [&] { return completed_; };
  if (timeout == kNoTimeout)
    cv_.wait(lock, done);
  else
    TORCH_CHECK_WITH(DistBackendError, cv_.wait_for(lock, timeout, done), title_, " (collective ", number_,
                     " of its group) is not done after ", timeout.count(), " ms");
}

void GroupWork::enqueue(int apart) {
  signal_ = std::make_shared<runtime::Signal>(device_->info());
  signal_->stand_for(device_->queue(apart));
  enqueued_ = true;
  const c10::StreamGuard guard(c10::Stream(c10::Stream::UNSAFE, torch_device(*device_), apart));
  future_->markCompleted(outputs_);
}

void GroupWork::add_waiting(runtime::Queue& queue) {
  const std::lock_guard lock(mutex_);
  if (enqueued_ && !completed_) waiting_.insert(&queue);
}

void GroupWork::complete_enqueued() {
  signal_->set();
  {
    const std::lock_guard lock(mutex_);
    completed_ = true;
    waiting_.clear();
  }
  cv_.notify_all();
  end_record();
}

void GroupWork::complete(int stream, int source_rank) {
  end_record();
  if (device_ == nullptr) {
    {
      const std::lock_guard lock(mutex_);
      source_rank_ = source_rank;
      completed_ = true;
    }
    cv_.notify_all();
    future_->markCompleted(outputs_);
    return;
  }
  const c10::Stream written(c10::Stream::UNSAFE, torch_device(*device_), stream);
  const c10::StreamGuard guard(written);  // The future's event is recorded on this stream.
  runtime::EventHandle done = device_->queue(stream).last_work();
  const cl_event event = done.get();
  std::shared_ptr<runtime::Signal> signal;
  {
    const std::lock_guard lock(mutex_);
    done_ = std::move(done);
    done_stream_ = stream;
    source_rank_ = source_rank;
    completed_ = true;
    waiting_.clear();
    signal = signal_;
  }
  if (signal && runtime::is_done(event))
    signal->set();
  else if (signal)
    runtime::when_done(device_->info(), event, [signal] { signal->set(); });
  cv_.notify_all();
  future_->markCompleted(outputs_);
}

void GroupWork::fail(const std::exception_ptr& error, const std::string& message) {
  std::shared_ptr<runtime::Signal> signal;
  {
    const std::lock_guard lock(mutex_);
    if (completed_) return;
    exception_ = error;
    completed_ = true;
    for (runtime::Queue* queue : waiting_) {
      try {
        queue->raise_later(message);
      } catch (const std::bad_alloc&) {
        // The streams must go on all the same. The caller still learns of the failure from this work.
      }
    }
    waiting_.clear();
    signal = signal_;
  }
  if (signal) signal->set();
  cv_.notify_all();
  end_record();
  future_->setErrorIfNeeded(error);
}

JointWork::JointWork(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> parts)
    : c10d::Work(rank, c10d::OpType::COALESCED), parts_(std::move(parts)) {
  const std::vector<at::Tensor> outputs = JointWork::result();
  auto left = std::make_shared<std::atomic<size_t>>(parts_.size());
  std::vector<c10::Device> where;
  for (const at::Tensor& output : outputs)
    if (std::find(where.begin(), where.end(), output.device()) == where.end()) where.push_back(output.device());
  future_ = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()), std::move(where));
  if (parts_.empty()) future_->markCompleted(outputs);
  for (const auto& part : parts_)
    part->getFuture()->addCallback([left, future = future_, outputs](Future& done) {
      if (done.hasError())
        future->setErrorIfNeeded(done.exception_ptr());
      else if (left->fetch_sub(1) == 1)
        future->markCompleted(outputs);
    });
}

bool JointWork::isCompleted() {
  return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->isCompleted(); });
}
bool JointWork::isSuccess() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->isSuccess(); });
}
std::exception_ptr JointWork::exception() const {
  for (const auto& part : parts_)
    if (auto error = part->exception()) return error;
  return nullptr;
}
std::vector<at::Tensor> JointWork::result() {
  std::vector<at::Tensor> all;
  for (const auto& part : parts_)
    for (const at::Tensor& output : part->result()) all.push_back(output);
  return all;
}
void JointWork::synchronize() {
  for (const auto& part : parts_) part->synchronize();
}
bool JointWork::wait(std::chrono::milliseconds timeout) {
  for (const auto& part : parts_) part->wait(timeout);
  return true;
}

}  // namespace ocl::distributed
