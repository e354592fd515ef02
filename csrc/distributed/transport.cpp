// csrc/distributed/transport.cpp: what all transports share; see transport.h.
#include "csrc/distributed/transport.h"

#include <mutex>
#include <utility>

#include "csrc/runtime/device/device.h"
#include "csrc/torch/device_state.h"

namespace ocl::distributed {
namespace {

struct Transports {
  std::mutex mutex;
  std::vector<std::weak_ptr<Transport>> all;
};
Transports& transports() {
  static auto* instance = new Transports;
  return *instance;
}

}  // namespace

void watch_stream(const JobPtr& job, const std::function<void()>& wake) {
  // The callback holds the job, because the driver may call it after everything else has gone.
  const auto ready = [wake, job] {
    job->ready = true;
    wake();
  };
  if (job->device == nullptr) return ready();
  try {
    runtime::Queue& queue = aten::current_queue(job->device->index());
    if (!queue.has_work()) return ready();
    const runtime::EventHandle last = queue.last_work();
    if (runtime::is_done(last.get())) return ready();
    if (job->device->caps().is_cpu && !runtime::any_signal_is_open()) {
      // The caller may as well wait, because the device computes on the host's cores. Runtimes then compute in this thread. If
      // a thread of theirs does, it keeps a core busy for a while afterwards, which the communication needs.
      const cl_event event = last.get();
      clWaitForEvents(1, &event);  // Later calls that wait for the stream raise its errors.
      return ready();
    }
    runtime::when_done(job->device->info(), last.get(), ready);
    queue.flush();
  } catch (...) {
    if (!job->ready) {
      job->error = std::current_exception();
      ready();
    }
    throw;
  }
}

void remember(const std::shared_ptr<Transport>& transport) {
  const std::lock_guard lock(transports().mutex);
  std::erase_if(transports().all, [](const auto& other) { return other.expired(); });
  transports().all.push_back(transport);
}

void end_transports() noexcept {
  std::vector<std::shared_ptr<Transport>> left;
  {
    const std::lock_guard lock(transports().mutex);
    for (const auto& weak : transports().all)
      if (auto transport = weak.lock()) left.push_back(std::move(transport));
  }
  for (const auto& transport : left) {
    try {
      transport->abort("the process ends");
      transport->shut_down();
    } catch (const std::exception&) {
      // No caller is left that could handle the error.
    }
  }
}

}  // namespace ocl::distributed
