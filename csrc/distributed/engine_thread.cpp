// csrc/distributed/engine_thread.cpp: see engine_thread.h.
#include "csrc/distributed/engine_thread.h"

#include <c10/util/Exception.h>

#include "csrc/distributed/threads.h"
#include "csrc/support/error.h"
#include "csrc/support/os.h"

namespace ocl::distributed {

void EngineThread::start() {
  remember(shared_from_this());
  thread_ = start_thread("for a process group", [self = shared_from_this()] { self->run(); });
}

void EngineThread::check_usable(const std::string& title) const {
  if (os::is_forked_child())
    fail(ErrorKind::kDevice, title +
                                 ": the process group was made before this process was forked.\n"
                                 "  do: start processes with the 'spawn' method, and call init_process_group in each");
  const std::lock_guard lock(mutex_);
  check_open();
}

void EngineThread::wake() {
  {
    const std::lock_guard lock(mutex_);
    ++wakes_;
  }
  woken_.notify_one();
}

bool EngineThread::failed() const {
  const std::lock_guard lock(mutex_);
  return !refusal_.empty() && !stopping_;
}

void EngineThread::abort(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    abort_reason_ = reason;
    refusal_ = reason;
    ++wakes_;
  }
  woken_.notify_one();
}

void EngineThread::shut_down() {
  if (os::is_forked_child()) {
    if (thread_.joinable()) thread_.detach();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    if (refusal_.empty()) refusal_ = "the process group " + names_.group + " was destroyed";
    stopping_ = true;
    ++wakes_;
  }
  woken_.notify_one();
  if (!thread_.joinable()) return;
  if (thread_.get_id() == std::this_thread::get_id())
    thread_.detach();  // A callback of a future destroyed the group on this thread, which cannot join itself.
  else
    thread_.join();
}

void EngineThread::check_open() const {
  if (!refusal_.empty()) TORCH_CHECK_WITH(DistBackendError, false, refusal_);
}

void EngineThread::refuse(const std::string& message) noexcept {
  if (!refusal_.empty()) return;
  refusal_ = "the group failed";
  attempt([&] { refusal_ = "the process group " + names_.group + " cannot be used any more: " + message; });
}

}  // namespace ocl::distributed
