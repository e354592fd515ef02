// csrc/runtime/queues/enqueue_thread.cpp: a ring of commands between the threads that post and the one that enqueues.
#include "csrc/runtime/queues/enqueue_thread.h"

#include <thread>
#include <utility>

#include "csrc/support/os.h"

namespace ocl::runtime {

namespace {

// How long the thread looks for the next command before it sleeps: waking it takes longer than that.
constexpr std::chrono::microseconds kLooks{50};

}  // namespace

EnqueueThread::EnqueueThread(std::function<void(const PostedCommand&)> enqueue)
    : enqueue_(std::move(enqueue)), commands_(std::make_unique<std::array<PostedCommand, kCapacity>>()) {
  std::thread([this] { run(); }).detach();
}

void EnqueueThread::post(const PostedCommand& command) {
  raise_failure();
  const std::lock_guard lock(posting_);
  const uint64_t position = posted_.load(std::memory_order_relaxed);
  while (position - done_.load(std::memory_order_acquire) >= kCapacity) std::this_thread::yield();
  (*commands_)[position % kCapacity] = command;
  posted_.store(position + 1);
  if (sleeps_.exchange(false)) posted_.notify_one();
}

void EnqueueThread::drain(std::chrono::steady_clock::time_point deadline) noexcept {
  while (is_busy() && !os::is_forked_child() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
}

void EnqueueThread::raise_failure() {
  if (!failed_.load(std::memory_order_acquire)) return;
  drain();
  const std::lock_guard lock(failing_);
  const std::exception_ptr failure = std::exchange(failure_, nullptr);
  failed_ = false;
  if (failure) std::rethrow_exception(failure);
}

void EnqueueThread::run() noexcept {
  for (uint64_t position = 0;; ++position) {
    const auto start = std::chrono::steady_clock::now();
    while (posted_.load(std::memory_order_acquire) == position) {
      if (std::chrono::steady_clock::now() - start < kLooks) {
        std::this_thread::yield();
        continue;
      }
      sleeps_ = true;
      if (posted_.load() == position) posted_.wait(position);
      sleeps_ = false;
    }
    if (!failed_.load(std::memory_order_relaxed)) {
      try {
        enqueue_((*commands_)[position % kCapacity]);
      } catch (...) {
        const std::lock_guard lock(failing_);
        failure_ = std::current_exception();
        failures_.fetch_add(1);
        failed_.store(true, std::memory_order_release);
      }
    }
    done_.store(position + 1, std::memory_order_release);
  }
}

}  // namespace ocl::runtime
