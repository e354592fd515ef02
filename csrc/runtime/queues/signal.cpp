// csrc/runtime/queues/signal.cpp: a user event of OpenCL, and callbacks of events; see signal.h.
#include "csrc/runtime/queues/signal.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/runtime/opencl/device_info.h"
#include "csrc/runtime/queues/queue.h"

namespace ocl::runtime {
namespace {

void CL_CALLBACK call_back(cl_event, cl_int, void* data) {
  const std::unique_ptr<std::function<void()>> then(static_cast<std::function<void()>*>(data));
  (*then)();
}

std::atomic<int> g_open_signals{0};

/// A thread that calls functions again and again.
class Watcher {
 public:
  void add(std::function<bool()> step) {
    const std::lock_guard lock(mutex_);
    if (!running_) {
      std::thread([this] { run(); }).detach();
      running_ = true;
    }
    added_.push_back(std::move(step));
    woken_.notify_one();
  }

 private:
  void run() {
    constexpr std::chrono::microseconds kPause{20};
    std::vector<std::function<bool()>> steps;
    while (runtimes_usable()) {
      {
        std::unique_lock lock(mutex_);
        if (steps.empty()) woken_.wait(lock, [&] { return !added_.empty(); });
        for (std::function<bool()>& one : added_) steps.push_back(std::move(one));
        added_.clear();
      }
      // The order is that of the calls, because callers that watch one queue expect its order.
      std::vector<std::function<bool()>> left;
      for (std::function<bool()>& one : steps)
        if (!one()) left.push_back(std::move(one));
      steps.swap(left);
      if (!steps.empty()) std::this_thread::sleep_for(kPause);
    }
  }

  std::mutex mutex_;
  std::condition_variable woken_;
  bool running_ = false;
  std::vector<std::function<bool()>> added_;
};

/// Never destroyed, because its thread does not end.
Watcher& watcher() {
  static auto* instance = new Watcher;
  return *instance;
}

}  // namespace

Signal::Signal(const DeviceInfo& device) {
  cl_int status = CL_SUCCESS;
  event_ = EventHandle(clCreateUserEvent(device.context.get(), &status));
  OCL_CHECK(status, "clCreateUserEvent on " + device.describe());
  g_open_signals.fetch_add(1);
}

bool any_signal_is_open() noexcept { return g_open_signals.load() != 0; }

void Signal::set() noexcept {
  if (set_.exchange(true)) return;
  g_open_signals.fetch_sub(1);
  if (!runtimes_usable()) return;
  clSetUserEventStatus(event_.get(), CL_COMPLETE);
}

void Signal::block(Queue& queue) const {
  if (set_) return;
  queue.wait_for(event_.get());
  queue.flush();
}

void Signal::stand_for(Queue& queue) const { queue.follow(event_.get()); }

void repeat_until_true(std::function<bool()> step) { watcher().add(std::move(step)); }

void when_done(const DeviceInfo& device, cl_event event, std::function<void()> then) {
  // GPU drivers may take long to call back: NVIDIA's looks every 20 ms for events that take more than some microseconds
  // (driver 580, H100).
  if (!device.caps.is_cpu) {
    const auto kept = std::make_shared<EventHandle>(retained(event));
    return repeat_until_true([kept, then = std::move(then)] {
      if (!is_done(kept->get())) return false;
      then();
      return true;
    });
  }
  auto data = std::make_unique<std::function<void()>>(std::move(then));
  OCL_CHECK(clSetEventCallback(event, CL_COMPLETE, &call_back, data.get()), "a callback of an event");
  data.release();
}

}  // namespace ocl::runtime
