// csrc/support/child_linux.cpp: child processes on Linux and other POSIX systems.
#if !defined(_WIN32)
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
#include "csrc/support/hash.h"

extern char** environ;

namespace ocl::os {
namespace {

constexpr uint64_t kMagic = 0x316c6b776c636fULL;    // "ocwkl1", the first bytes of each message.
constexpr uint64_t kMostBytes = uint64_t{1} << 32;  // Largest message in bytes. A larger size is garbage.

struct Header {
  uint64_t magic = kMagic, bytes = 0, checksum = 0;
};

std::string packed(const Message& message) {
  std::string all;
  for (const std::string& part : message) {
    const uint64_t bytes = part.size();
    all.append(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
    all += part;
  }
  return all;
}

bool unpack(const std::string& all, Message& message) {
  message.clear();
  for (size_t at = 0; at < all.size();) {
    uint64_t bytes = 0;
    if (all.size() - at < sizeof(bytes)) return false;
    std::memcpy(&bytes, all.data() + at, sizeof(bytes));
    at += sizeof(bytes);
    if (all.size() - at < bytes) return false;
    message.emplace_back(all, at, bytes);
    at += bytes;
  }
  return true;
}

}  // namespace

Channel::~Channel() {
  if (handle_ >= 0) close(handle_);
}

bool Channel::send(const Message& message) noexcept {
  const std::string body = packed(message);
  const Header header{kMagic, body.size(), hash128(body).low};
  std::string all(reinterpret_cast<const char*>(&header), sizeof(header));
  all += body;
  for (size_t done = 0; done < all.size();) {
    const ssize_t count = ::send(handle_, all.data() + done, all.size() - done, MSG_NOSIGNAL);
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
    pollfd waited{handle_, POLLIN, 0};
    const int ready = poll(&waited, 1, wait_ms);
    if (ready < 0 && errno != EINTR) return Received::kEnded;
    if (ready <= 0) continue;
    const ssize_t got = recv(handle_, into + done, count - done, 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return Received::kEnded;
    done += static_cast<size_t>(got);
  }
  return Received::kMessage;
}

Received Channel::receive(Message& message, std::chrono::milliseconds limit) {
  const bool limited = limit.count() >= 0;
  const auto deadline = std::chrono::steady_clock::now() + (limited ? limit : std::chrono::milliseconds(0));
  Header header;
  Received state = read(&header, sizeof(header), deadline, limited);
  if (state != Received::kMessage) return state;
  if (header.magic != kMagic || header.bytes > kMostBytes) return Received::kGarbage;
  std::string body(header.bytes, '\0');
  state = read(body.data(), body.size(), deadline, limited);
  if (state != Received::kMessage) return state;
  return hash128(body).low == header.checksum && unpack(body, message) ? Received::kMessage : Received::kGarbage;
}

void Channel::wait_for_end() noexcept {
  for (;;) {
    pollfd waited{handle_, POLLRDHUP, 0};
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

std::string Child::end() noexcept {
  if (process_ <= 0) return "gone";
  kill(process_, SIGKILL);
  int status = 0;
  pid_t reaped = 0;
  do reaped = waitpid(process_, &status, 0);
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
#endif
