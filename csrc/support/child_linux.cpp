// csrc/support/child_linux.cpp: child processes on Linux and other POSIX systems.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "csrc/support/child.h"

extern char** environ;

namespace ocl::os {
void Channel::close() noexcept {
  if (handle_ >= 0) ::close(static_cast<int>(handle_));
  handle_ = -1;
}

std::unique_ptr<Channel> parent_channel() { return std::make_unique<Channel>(STDIN_FILENO); }

bool Channel::send_bytes(const std::string& bytes) noexcept {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::send(static_cast<int>(handle_), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += static_cast<size_t>(count);
  }
  return true;
}

Received Channel::read(void* bytes, size_t count, std::chrono::steady_clock::time_point deadline, bool limited) noexcept {
  auto* into = static_cast<char*>(bytes);
  for (size_t done = 0; done < count;) {
    int wait_ms = -1;
    if (limited) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
      if (left <= 0) return Received::kLate;
      wait_ms = static_cast<int>(std::min<int64_t>(left, 1 << 30));
    }
    pollfd waited{static_cast<int>(handle_), POLLIN, 0};
    const int ready = poll(&waited, 1, wait_ms);
    if (ready < 0 && errno != EINTR) return Received::kEnded;
    if (ready <= 0) continue;
    const ssize_t got = recv(static_cast<int>(handle_), into + done, count - done, 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return Received::kEnded;
    done += static_cast<size_t>(got);
  }
  return Received::kMessage;
}

void Channel::wait_for_end() noexcept {
  for (;;) {
    pollfd waited{static_cast<int>(handle_), POLLRDHUP, 0};
    if (poll(&waited, 1, -1) < 0 && errno != EINTR) return;
    if (waited.revents) return;
  }
}

std::unique_ptr<Child> Child::start(const std::string& path, bool loud, std::string& problem) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    problem = std::string("no socket: ") + std::strerror(errno);
    return nullptr;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  if (!loud) posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  // The child has its own process group, so that ^C in the terminal reaches only the parent; the child sees the
  // parent's end. No signal is blocked in the child.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  std::string name = path;
  char* arguments[] = {name.data(), nullptr};
  pid_t process = 0;
  const int error = posix_spawn(&process, path.c_str(), &actions, &attributes, arguments, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    problem = path + ": " + std::strerror(error);
    return nullptr;
  }
  return std::unique_ptr<Child>(new Child(process, ends[0]));
}

bool Child::is_running() const noexcept {
  if (process_ <= 0) return false;
  siginfo_t ended{};
  return waitid(P_PID, static_cast<id_t>(process_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == 0;
}

void Child::kill() noexcept {
  if (process_ > 0) ::kill(static_cast<pid_t>(process_), SIGKILL);
}

std::string Child::end() noexcept {
  if (process_ <= 0) return "gone";
  const auto process = static_cast<pid_t>(process_);
  kill();
  int status = 0;
  pid_t reaped = 0;
  do reaped = waitpid(process, &status, 0);
  while (reaped < 0 && errno == EINTR);
  process_ = 0;
  if (reaped < 0) return "gone";
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return "exit status " + std::to_string(WEXITSTATUS(status));
}

Child::~Child() { end(); }

std::string own_folder() {
  Dl_info found{};
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &found) == 0 || !found.dli_fname) return "";
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(found.dli_fname, error);
  return error ? "" : file.parent_path().string();
}

}  // namespace ocl::os
