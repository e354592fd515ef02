// csrc/runtime/device/peer_link.cpp: copies between GPUs by CUDA's driver; see peer_link.h.
#include "csrc/runtime/device/peer_link.h"

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/runtime/device/device.h"
#include "csrc/runtime/memory/allocator.h"
#include "csrc/runtime/queues/queue.h"
#include "csrc/runtime/queues/signal.h"
#include "csrc/support/log.h"

namespace ocl::runtime {
namespace {

// How long the host waits, rather than let the queues wait for events that it completes. NVIDIA's driver takes some 0.4 ms to
// start work behind such an event.
constexpr std::chrono::microseconds kForEarlierWork{50};
constexpr std::chrono::milliseconds kForTheCopy{1};

/// Calls `over` until it returns true or `most` has passed. Returns what it returned last.
template <class Over>
bool wait_for(std::chrono::microseconds most, const Over& over) {
  const auto deadline = std::chrono::steady_clock::now() + most;
  while (!over()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace

/// One copy. It is waiting for earlier work, then under way.
struct PeerLink::Copy {
  PeerLink& link;
  Queue &source, &target;
  CudaAddress from, to;
  size_t bytes;
  std::vector<std::pair<EventHandle, const DeviceInfo*>> before{};  // Work that is to be done first.
  std::unique_ptr<CudaEvent> done = nullptr;                        // Null until the copy is under way.
  std::optional<Signal> of_source{}, of_target{};                   // For these the queues wait.

  /// Starts the copy if the earlier work is done. DeviceError if that work failed.
  bool try_to_start() {
    while (!before.empty()) {
      cl_int state = CL_QUEUED;
      const auto& [event, device] = before.back();
      OCL_CHECK(clGetEventInfo(event.get(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, nullptr), "an event");
      if (!completed(state, device->describe())) return false;
      before.pop_back();
    }
    const CudaContextGuard context(link.from_);
    check_cuda(cuda_functions().copy_to_peer(to, link.to_.context(), from, link.from_.context(), bytes, link.stream_->get()),
               "cuMemcpyPeerAsync");
    done = std::make_unique<CudaEvent>(*link.stream_);
    return true;
  }

  bool is_done() {
    const CudaContextGuard context(link.from_);
    if (!done->complete()) return false;
    done.reset();
    return true;
  }

  /// Does what can be done now. Returns true if the copy is over.
  bool advance() noexcept {
    try {
      if (!done && !try_to_start()) return false;
      if (!is_done()) return false;
    } catch (const std::exception& error) {
      give_up(error.what());
    }
    of_source->set();
    of_target->set();
    return true;
  }

  void give_up(const std::string& problem) noexcept {
    try {
      const std::string message = "a copy from ocl:" + std::to_string(source.device().index) +
                                  " to ocl:" + std::to_string(target.device().index) + " failed: " + problem;
      source.raise_later(message);
      target.raise_later(message);
    } catch (const std::bad_alloc&) {
      // The queues must go on all the same.
    }
  }
};

PeerLink::PeerLink(Device& from, Device& to)
    : source_(from), target_(to), from_(CudaDevice::of(from.info())), to_(CudaDevice::of(to.info())) {
  int can = 0;
  check_cuda(cuda_functions().can_access_peer(&can, to_.handle(), from_.handle()), "cuDeviceCanAccessPeer");
  direct_ = can != 0;
  const CudaContextGuard context(from_);
  stream_ = std::make_unique<CudaStream>();
}

PeerLink* PeerLink::between(Device& from, Device& to) {
  static std::mutex mutex;
  static auto* links = new std::map<std::pair<int, int>, std::unique_ptr<PeerLink>>;
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = links->try_emplace({from.index(), to.index()});
  if (!is_new || &from == &to || !CudaDevice::exists(from.info()) || !CudaDevice::exists(to.info())) return entry->second.get();
  try {
    entry->second.reset(new PeerLink(from, to));
  } catch (const Error& error) {
    log_message(LogLevel::kInfo, "runtime",
                "copies from ocl:" + std::to_string(from.index()) + " to ocl:" + std::to_string(to.index()) +
                    " go through the host: " + error.what());
  }
  return entry->second.get();
}

void PeerLink::open() {
  std::call_once(opened_, [&] {
    source_.allocator().prefer_cuda();
    target_.allocator().prefer_cuda();
    if (!direct_) return;
    try {
      target_.allocator().allow(from_);  // The source's GPU writes to the target's memory.
    } catch (const Error& error) {
      direct_ = false;
      log_message(LogLevel::kInfo, "runtime", std::string("CUDA takes copies through the host: ") + error.what());
    }
  });
}

void PeerLink::copy(Queue& source, EventHandle source_ready, uint64_t from, Queue& target, EventHandle target_ready,
                    uint64_t to, size_t bytes) {
  const std::shared_ptr<Copy> copy(new Copy{*this, source, target, from, to, bytes});
  if (source_ready.get() != nullptr) copy->before.emplace_back(std::move(source_ready), &source.device());
  if (target_ready.get() != nullptr) copy->before.emplace_back(std::move(target_ready), &target.device());
  const bool started = wait_for(kForEarlierWork, [&] { return copy->try_to_start(); });
  if (started && wait_for(kForTheCopy, [&] { return copy->is_done(); })) return;
  copy->of_source.emplace(source.device());
  copy->of_target.emplace(target.device());
  // The thread has the copy before the queues wait, so that the queues go on if an error ends this call.
  repeat_until_true([copy] { return copy->advance(); });
  copy->of_source->block(source);
  copy->of_target->block(target);
}

}  // namespace ocl::runtime
