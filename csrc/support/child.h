// csrc/support/child.h: a child process, and messages to and from it. They pass through a socket; on Windows through a named
// pipe.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ocl::os {

/// A message: a list of byte strings that is sent as a whole.
using Message = std::vector<std::string>;

enum class Received { kMessage, kEnded, kLate, kGarbage };

/// One end of the socket or pipe. One thread may wait for the end while another one sends and receives.
class Channel {
 public:
  explicit Channel(intptr_t handle) : handle_(handle) {}
  ~Channel() { close(); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  /// Returns false if the other side is gone.
  bool send(const Message& message) noexcept;
  /// Sends bytes that need not be a message. Returns false if the other side is gone.
  bool send_bytes(const std::string& bytes) noexcept;
  /// Waits for a message for at most `limit`; a negative limit waits forever. Returns kEnded if the other side is gone, kLate
  /// if the limit has passed, and kGarbage if the bytes are no message or a damaged one.
  Received receive(Message& message, std::chrono::milliseconds limit);
  /// Waits until the other side has closed its end.
  void wait_for_end() noexcept;
  /// Closes this end. Later calls fail.
  void close() noexcept;

 private:
  Received read(void* bytes, size_t count, std::chrono::steady_clock::time_point deadline, bool limited) noexcept;
  intptr_t handle_;
};

/// In a child that this project has started: returns the channel to the parent.
std::unique_ptr<Channel> parent_channel();

/// A child process. Its standard input is its end of the channel. Its standard output is discarded, and so is its standard
/// error unless `loud`.
class Child {
 public:
  /// Starts the program at `path`. If that fails, returns nullptr and puts the reason into `problem`.
  static std::unique_ptr<Child> start(const std::string& path, bool loud, std::string& problem);
  /// Kills the process if it still runs, and waits for it.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  Channel& channel() { return channel_; }
  /// True until the process has ended.
  bool is_running() const noexcept;
  /// Kills the process, which does not free its id: a thread that waits for a message from it goes on.
  void kill() noexcept;
  /// Kills the process and says how it ended: "signal 11", "exit status 3", and on Windows "exception 0xC0000005" or "killed".
  std::string end() noexcept;

 private:
  Child(intptr_t process, intptr_t handle) : process_(process), channel_(handle) {}
  intptr_t process_;  // The process id; on Windows a handle.
  Channel channel_;
};

/// Returns the folder of the library or program that contains this code, or "" if the system does not tell.
std::string own_folder();

}  // namespace ocl::os
