// csrc/support/child.h: a child process, and messages to and from it over a socket.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace ocl::os {

/// A message: a list of byte strings that is sent as a whole.
using Message = std::vector<std::string>;

enum class Received { kMessage, kEnded, kLate, kGarbage };

/// One end of the socket. Not thread-safe.
class Channel {
 public:
  explicit Channel(int handle) : handle_(handle) {}
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  /// Returns false if the other side is gone.
  bool send(const Message& message) noexcept;
  /// Waits for a message for at most `limit`; a negative limit waits forever. Returns kEnded if the other side is gone, kLate
  /// if the limit has passed, and kGarbage if the bytes are no message or a damaged one.
  Received receive(Message& message, std::chrono::milliseconds limit);
  /// Waits until the other side has closed its end.
  void wait_for_end() noexcept;
  int handle() const { return handle_; }

 private:
  Received read(void* bytes, size_t count, std::chrono::steady_clock::time_point deadline, bool limited) noexcept;
  int handle_;
};

/// A child process. Its standard input is the socket. Its standard output is discarded, and so is its standard error unless
/// `loud`.
class Child {
 public:
  /// Starts the program at `path`. If that fails, returns nullptr and puts the reason into `problem`.
  static std::unique_ptr<Child> start(const std::string& path, bool loud, std::string& problem);
  /// Kills the process if it still runs, and waits for it.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  Channel& channel() { return channel_; }
  int process() const { return process_; }
  /// Kills the process and says how it ended: "signal 11", "exit status 3".
  std::string end() noexcept;

 private:
  Child(int process, int handle) : process_(process), channel_(handle) {}
  int process_;
  Channel channel_;
};

/// Returns the folder of the library or program that contains this code, or "" if the system does not tell.
std::string own_folder();

}  // namespace ocl::os
