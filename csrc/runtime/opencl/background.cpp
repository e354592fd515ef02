// csrc/runtime/opencl/background.cpp: counts the threads, so that the end of the process can wait for them.
#include "csrc/runtime/opencl/background.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "csrc/support/error.h"

namespace ocl::runtime {
namespace {

struct Threads {
  std::mutex mutex;
  std::condition_variable ended;
  int running = 0;
  std::atomic<bool> ending{false};
  std::atomic<void (*)() noexcept> stop{nullptr};
};

Threads& threads() {
  static auto* all = new Threads;  // Never destroyed, because threads may outlive static destruction.
  return *all;
}

thread_local bool t_background = false, t_awaited = true;

void count(int change) noexcept {
  Threads& all = threads();
  {
    const std::lock_guard lock(all.mutex);
    all.running += change;
  }
  all.ended.notify_all();
}

}  // namespace

std::future<void> run_in_background(std::function<void()> work, bool awaited) {
  std::packaged_task<void()> task(work);
  std::future<void> done = task.get_future();
  count(1);
  try {
    std::thread([task = std::move(task), awaited]() mutable {
      t_background = true;
      t_awaited = awaited;
      task();
      task = {};  // Drops what the task holds while the end of the process still waits for this thread.
      count(-1);
    }).detach();
  } catch (const std::system_error&) {
    count(-1);
    return std::async(std::launch::deferred, std::move(work));
  }
  return done;
}

bool in_background() noexcept { return t_background; }

bool is_awaited() noexcept { return t_awaited; }

void check_not_ending() {
  if (t_background && is_ending()) fail(ErrorKind::kDevice, "the process is ending, so no more kernels are built");
}

bool is_ending() noexcept { return threads().ending; }

void set_stop(void (*stop)() noexcept) noexcept { threads().stop = stop; }

void end_background(std::chrono::steady_clock::time_point deadline) noexcept {
  Threads& all = threads();
  std::unique_lock lock(all.mutex);
  if (all.running == 0) return;
  all.ending = true;
  lock.unlock();
  if (auto* const stop = all.stop.load()) stop();
  lock.lock();
  all.ended.wait_until(lock, deadline, [&] { return all.running == 0; });
}

}  // namespace ocl::runtime
