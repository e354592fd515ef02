// csrc/distributed/threads.h: starts threads. If the system has none left, the error says what the thread was for.
#pragma once

#include <functional>
#include <thread>

namespace ocl::distributed {

/// Starts a thread that runs `body`. Throws ocl::Error of kind kDevice if the system starts no more threads; `purpose` says
/// what the thread is for.
std::thread start_thread(const char* purpose, std::function<void()> body);

/// If on, start_thread() fails as it does when the system has no threads left. Only tests use it.
void refuse_threads(bool on);

}  // namespace ocl::distributed
