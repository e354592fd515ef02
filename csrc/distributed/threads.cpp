// csrc/distributed/threads.cpp: starts threads; see threads.h.
#include "csrc/distributed/threads.h"

#include <atomic>
#include <string>
#include <system_error>
#include <utility>

#include "csrc/support/error.h"

namespace ocl::distributed {
namespace {

std::atomic<bool> g_refused{false};

}  // namespace

void refuse_threads(bool on) { g_refused = on; }

std::thread start_thread(const char* purpose, std::function<void()> body) {
  try {
    if (g_refused) throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    fail(ErrorKind::kDevice,
         std::string("the system starts no thread ") + purpose + ": " + error.what() +
             "\n  do: end other processes, or raise the limits of threads and memory (ulimit -u, ulimit -v)");
  }
}

}  // namespace ocl::distributed
