// csrc/runtime/queues/queue.cpp: enqueues work. finish() reports errors of earlier work with the names of the last launches.
#include "csrc/runtime/queues/queue.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>

#include "csrc/runtime/opencl/create_queue.h"
#include "csrc/runtime/opencl/profile_limits.h"
#include "csrc/runtime/queues/fault_words.h"

namespace ocl::runtime {
namespace {

struct KernelNames {
  std::mutex mutex;
  std::deque<std::string> names{""};  // A deque never moves its elements.
  std::unordered_map<std::string, int> ids;
};

std::atomic<void (*)(Queue&)> g_observer{nullptr};
std::atomic<EnqueueThreads> g_threads{EnqueueThreads::kAuto};

KernelNames& names() {
  static auto* names = new KernelNames;
  return *names;
}

std::string kernel_text(cl_kernel kernel) {
  char name[256] = "";
  clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof(name) - 1, name, nullptr);
  return name;
}

/// Returns a LaunchInfo for a launch without one. It has only the kernel's name and the launch's sizes.
LaunchInfoPtr unknown_launch(cl_kernel kernel, const std::array<size_t, 3>& global, const std::array<size_t, 3>& local) {
  auto info = std::make_shared<LaunchInfo>();
  info->kernel = info->title = kernel_text(kernel);
  info->kind = "kernel";
  info->global = global;
  info->local = local;
  return info;
}

}  // namespace

int kernel_name_id(const std::string& name) {
  KernelNames& table = names();
  std::lock_guard lock(table.mutex);
  const auto [row, added] = table.ids.try_emplace(name, static_cast<int>(table.names.size()));
  if (added) table.names.push_back(name);
  return row->second;
}

Queue::Queue(const DeviceInfo& device, FaultWords& faults, int stream, int priority)
    : device_(device), stream_(stream), faults_(faults) {
  if (stream == 0 && device.own_queue) {
    queue_ = retained(device.own_queue.get());
    cl_command_queue_properties properties = 0;
    OCL_CHECK(clGetCommandQueueInfo(queue_.get(), CL_QUEUE_PROPERTIES, sizeof properties, &properties, nullptr),
              "the program's queue");
    has_times_ = (properties & CL_QUEUE_PROFILING_ENABLE) != 0;
    shared_ = true;
    return;
  }
  const bool is_plain = priority == 0 || !device.caps.queue_priorities;
  CreatedQueue made = create_queue(device.context.get(), device.id,
                                   is_plain       ? 0
                                   : priority < 0 ? CL_QUEUE_PRIORITY_HIGH_KHR
                                                  : CL_QUEUE_PRIORITY_LOW_KHR);
  OCL_CHECK(made.status, "clCreateCommandQueue on " + device.describe());
  queue_ = std::move(made.handle);
  has_times_ = made.times;
}

void Queue::write(cl_mem dst, size_t dst_offset, const void* src, size_t bytes, bool blocking) {
  if (bytes == 0) return;
  check_usable();
  drain_or_throw();
  NotedCommand noted(CommandType::kUpload, device_.index, stream_);
  const cl_int status = clEnqueueWriteBuffer(queue_.get(), dst, blocking, dst_offset, bytes, src, 0, nullptr, noted.event());
  if (status != CL_SUCCESS) raise(status, "clEnqueueWriteBuffer", std::to_string(bytes) + " bytes");
  enqueued_.fetch_add(1);
  noted.done(static_cast<int64_t>(bytes));
}

void Queue::read(cl_mem src, size_t src_offset, void* dst, size_t bytes, bool blocking) {
  if (bytes == 0) return;
  check_usable();
  drain_or_throw();
  std::optional<FaultWords::Reading> reading;
  if (blocking && !apart_) reading.emplace(faults_, queue_.get(), expects_faults_);
  NotedCommand noted(CommandType::kDownload, device_.index, stream_);
  const cl_int status = clEnqueueReadBuffer(queue_.get(), src, blocking, src_offset, bytes, dst, 0, nullptr, noted.event());
  if (status != CL_SUCCESS) raise(status, "clEnqueueReadBuffer", std::to_string(bytes) + " bytes");
  enqueued_.fetch_add(1);
  noted.done(static_cast<int64_t>(bytes));
  if (blocking) raise_deferred();
  if (reading) reading->raise();
}

void Queue::expect_faults() noexcept { faults_.expect(expects_faults_); }

void Queue::copy(cl_mem src, size_t src_offset, cl_mem dst, size_t dst_offset, size_t bytes) {
  if (bytes == 0 || (src == dst && src_offset == dst_offset)) return;
  check_usable();
  drain_or_throw();
  NotedCommand noted(CommandType::kCopy, device_.index, stream_);
  const cl_int status = clEnqueueCopyBuffer(queue_.get(), src, dst, src_offset, dst_offset, bytes, 0, nullptr, noted.event());
  if (status != CL_SUCCESS) raise(status, "clEnqueueCopyBuffer", std::to_string(bytes) + " bytes");
  enqueued_.fetch_add(1);
  noted.done(static_cast<int64_t>(bytes));
}

void Queue::fill(cl_mem dst, size_t offset, size_t bytes, const void* pattern, size_t pattern_bytes, cl_event* event) {
  if (bytes == 0) return;
  check_usable();
  if (event == nullptr && pattern_bytes <= sizeof PostedCommand::value && thread_is_awake() && may_post(1)) {
    PostedCommand command{.kind = PostedCommand::Kind::kFill, .bytes_of_pattern = pattern_bytes, .memory = dst};
    std::memcpy(command.value.data(), pattern, pattern_bytes);
    command.offset = offset;
    command.bytes = bytes;
    return post(command);
  }
  drain_or_throw();
  NotedCommand noted(CommandType::kFill, device_.index, stream_);
  const cl_int status =
      clEnqueueFillBuffer(queue_.get(), dst, pattern, pattern_bytes, offset, bytes, 0, nullptr, noted.event(event));
  if (status != CL_SUCCESS) raise(status, "clEnqueueFillBuffer", std::to_string(bytes) + " bytes");
  enqueued_.fetch_add(1);
  noted.done(static_cast<int64_t>(bytes));
}

void Queue::launch(cl_kernel kernel, int dims, const std::array<size_t, 3>& global, const std::array<size_t, 3>& local,
                   cl_event* event, int name_id, const LaunchInfoPtr& info) {
  for (int i = 0; i < dims; ++i)
    // An empty launch is an error before OpenCL 2.1, so it is skipped.
    if (global[i] == 0) {
      if (event) *event = nullptr;
      return;
    }
  if (device_.profile) check_launch(device_, kernel_text(kernel), dims, local);
  check_usable();
  drain_or_throw();
  NotedCommand noted(CommandType::kLaunch, device_.index, stream_);
  launch_now(kernel, dims, global, local, noted.event(event), name_id);
  enqueued_.fetch_add(1);
  if (noted.noted()) noted.done(0, info ? info : unknown_launch(kernel, global, local));
}

bool Queue::may_post(size_t cost) const {
  constexpr size_t kFewLaunches = 4;
  if (device_.profile || wanted() || shared_) return false;
  switch (g_threads.load(std::memory_order_relaxed)) {
    case EnqueueThreads::kNever:
      return false;
    case EnqueueThreads::kAlways:
      return true;
    case EnqueueThreads::kAuto:
      break;
  }
  return !device_.caps.is_cpu && (cost > kFewLaunches || thread_is_awake());
}

void Queue::share() {
  shared_ = true;
  drain_or_throw();
}

void Queue::post(const PostedCommand& command) {
  check_usable();
  std::call_once(thread_made_, [&] {
    thread_.store(new EnqueueThread([this](const PostedCommand& posted) { enqueue(posted); }), std::memory_order_release);
  });
  thread_.load(std::memory_order_acquire)->post(command);
  if (command.kind != PostedCommand::Kind::kArgument && command.kind != PostedCommand::Kind::kFlush) enqueued_.fetch_add(1);
}

bool Queue::has_posted() const noexcept {
  const EnqueueThread* thread = thread_.load(std::memory_order_acquire);
  return thread != nullptr && thread->is_busy();
}

bool Queue::thread_is_awake() const noexcept {
  const EnqueueThread* thread = thread_.load(std::memory_order_acquire);
  return thread != nullptr && thread->is_awake();
}

void Queue::drain() noexcept {
  if (EnqueueThread* thread = thread_.load(std::memory_order_acquire)) thread->drain();
}

void Queue::drain_or_throw() {
  EnqueueThread* thread = thread_.load(std::memory_order_acquire);
  if (thread == nullptr) return;
  thread->drain();
  thread->raise_failure();
}

uint64_t Queue::posted_failures() const noexcept {
  const EnqueueThread* thread = thread_.load(std::memory_order_acquire);
  return thread == nullptr ? 0 : thread->failures();
}

void Queue::enqueue(const PostedCommand& command) {
  check_usable();
  cl_int status = CL_SUCCESS;
  switch (command.kind) {
    case PostedCommand::Kind::kArgument:
      status = clSetKernelArg(command.kernel, command.slot, sizeof command.value[0], command.value.data());
      if (status != CL_SUCCESS) raise(status, "clSetKernelArg", "kernel " + kernel_text(command.kernel));
      return;
    case PostedCommand::Kind::kLaunch:
      return launch_now(command.kernel, 3, *command.global, *command.local, nullptr, command.name_id);
    case PostedCommand::Kind::kFill:
      status = clEnqueueFillBuffer(queue_.get(), command.memory, command.value.data(), command.bytes_of_pattern, command.offset,
                                   command.bytes, 0, nullptr, nullptr);
      if (status != CL_SUCCESS) raise(status, "clEnqueueFillBuffer", std::to_string(command.bytes) + " bytes");
      return;
    case PostedCommand::Kind::kFlush:
      status = clFlush(queue_.get());
      if (status != CL_SUCCESS) raise(status, "clFlush", "");
      return;
  }
}

void Queue::launch_now(cl_kernel kernel, int dims, const std::array<size_t, 3>& global, const std::array<size_t, 3>& local,
                       cl_event* event, int name_id) {
  const cl_int status = clEnqueueNDRangeKernel(queue_.get(), kernel, static_cast<cl_uint>(dims), nullptr, global.data(),
                                               local[0] == 0 ? nullptr : local.data(), 0, nullptr, event);
  if (status != CL_SUCCESS)
    raise(status, "clEnqueueNDRangeKernel",
          "kernel " + kernel_text(kernel) + ", global " + sizes_text(dims, global) + ", local " + sizes_text(dims, local));
  const unsigned position = launched_.load(std::memory_order_relaxed);
  last_[position % last_.size()].store(name_id, std::memory_order_relaxed);
  launched_.store(position + 1, std::memory_order_relaxed);
}

void Queue::follow(cl_event event) {
  {
    const std::lock_guard lock(followed_mutex_);
    followed_ = retained(event);
  }
  follows_ = true;
  enqueued_.fetch_add(1);
}

EventHandle Queue::followed() {
  const std::lock_guard lock(followed_mutex_);
  return retained(followed_.get());
}

EventHandle Queue::marker() {
  check_usable();
  drain_or_throw();
  if (follows_) return followed();
  cl_event event = nullptr;
  cl_int status = clEnqueueMarkerWithWaitList(queue_.get(), 0, nullptr, &event);
  if (status != CL_SUCCESS) raise(status, "clEnqueueMarkerWithWaitList", "");
  EventHandle handle(event);
  // Another queue may wait for the marker, so it must be submitted.
  flush();
  return handle;
}

EventHandle Queue::last_work() {
  const std::lock_guard lock(last_work_mutex_);
  const uint64_t position = enqueued_.load();
  if (!last_work_ || last_work_position_ != position) {
    last_work_ = marker();
    last_work_position_ = position;
  }
  return retained(last_work_.get());
}

void set_enqueue_threads(EnqueueThreads allowed) noexcept { g_threads = allowed; }

void Queue::observe_waits(void (*observer)(Queue& queue)) noexcept { g_observer = observer; }

void Queue::wait_for(cl_event event) {
  check_usable();
  drain_or_throw();
  if (auto* observer = g_observer.load(std::memory_order_acquire); observer && !apart_) observer(*this);
  NotedCommand noted(CommandType::kStreamWait, device_.index, stream_);
  const cl_int status = clEnqueueBarrierWithWaitList(queue_.get(), 1, &event, noted.event());
  if (status != CL_SUCCESS) raise(status, "clEnqueueBarrierWithWaitList", "");
  enqueued_.fetch_add(1);
  noted.done();
}

void Queue::flush() {
  drain_or_throw();
  const cl_int status = clFlush(queue_.get());
  if (status != CL_SUCCESS) raise(status, "clFlush", "");
}

void Queue::finish() {
  check_usable();
  drain_or_throw();
  const uint64_t position = enqueued_.load();
  std::optional<FaultWords::Reading> reading;
  if (!apart_ && !follows_) reading.emplace(faults_, queue_.get(), expects_faults_);
  NotedCommand noted(CommandType::kQueueFinish, device_.index, stream_);
  cl_int status = CL_SUCCESS;
  if (follows_) {
    const EventHandle last = followed();
    const cl_event event = last.get();
    status = clWaitForEvents(1, &event);
  } else {
    status = clFinish(queue_.get());
  }
  noted.done();
  if (status != CL_SUCCESS) raise(status, "clFinish", "");
  finished_.store(position);
  launched_.store(0, std::memory_order_relaxed);
  raise_deferred();
  if (reading) reading->raise();
}

void Queue::raise_later(const std::string& message) {
  const std::lock_guard lock(deferred_mutex_);
  if (deferred_.empty()) deferred_ = message;
  has_deferred_ = true;
}

void Queue::raise_deferred() {
  if (!has_deferred_) return;
  const std::lock_guard lock(deferred_mutex_);
  has_deferred_ = false;
  fail(ErrorKind::kDevice, std::exchange(deferred_, {}));
}

bool Queue::idle() {
  raise_deferred();
  cl_int state = CL_QUEUED;
  const EventHandle last = last_work();
  OCL_CHECK(clGetEventInfo(last.get(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, nullptr), device_.describe());
  return completed(state, device_.describe());
}

bool Queue::finish_before(std::chrono::steady_clock::time_point deadline) noexcept {
  try {
    if (EnqueueThread* thread = thread_.load(std::memory_order_acquire)) thread->drain(deadline);
    if (has_posted()) return false;
    const uint64_t position = enqueued_.load();
    if (position == finished_.load()) return true;
    const EventHandle last = marker();
    while (!is_done(last.get())) {
      if (std::chrono::steady_clock::now() >= deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    clFinish(queue_.get());
    finished_.store(position);
  } catch (const std::exception&) {
    // The queue is broken: nothing in it runs any more.
  }
  return true;
}

void Queue::check_usable() const {
  if (!runtimes_usable())
    fail(ErrorKind::kDevice, std::string("work for ") + device_.describe() +
                                 (os::is_ending() ? " while the process ends" : " in a forked process"));
}

void Queue::raise(cl_int status, const char* call, const std::string& detail) {
  std::string where = detail;
  if (!where.empty()) where += ", ";
  where += "queue ";
  where += std::to_string(stream_);
  where += " of ";
  where += device_.describe();
  const unsigned launched = launched_.load(std::memory_order_relaxed);
  const unsigned count = std::min<unsigned>(launched, last_.size());
  std::string launches;
  {
    KernelNames& table = names();
    std::lock_guard lock(table.mutex);
    for (unsigned i = 1; i <= count; ++i)
      if (const int id = last_[(launched - i) % last_.size()].load(std::memory_order_relaxed);
          id > 0 && id < static_cast<int>(table.names.size()))
        launches += (launches.empty() ? "" : ", ") + table.names[id];
  }
  if (!launches.empty()) where += "\n  launched before it, latest first: " + launches;
  raise_status(status, call, where);
}

}  // namespace ocl::runtime
