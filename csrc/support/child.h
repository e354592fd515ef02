// csrc/support/child.h: a program that this process starts and talks to in messages, over a socket.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace ocl::os {

/// A list of byte strings, sent whole: what a message holds.
using Message = std::vector<std::string>;

enum class Received { kMessage, kEnded, kLate, kGarbage };

/// One end of the conversation. Not thread-safe.
class Channel {
 public:
  explicit Channel(int handle) : handle_(handle) {}
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  /// False when the other side is gone.
  bool send(const Message& message) noexcept;
  /// kGarbage: what came is no message of ours, or was cut or changed on the way. A negative limit: waits without one.
  Received receive(Message& message, std::chrono::milliseconds limit);
  /// Waits until the other side has closed its end; returns at once if it has.
  void wait_for_end() noexcept;
  int handle() const { return handle_; }

 private:
  Received read(void* bytes, size_t count, std::chrono::steady_clock::time_point deadline, bool limited) noexcept;
  int handle_;
};

/// The other process. Its standard input is the socket; what it prints goes nowhere, or to our standard error if `loud`.
class Child {
 public:
  /// nullptr with the reason in `problem` when it cannot be started.
  static std::unique_ptr<Child> start(const std::string& path, bool loud, std::string& problem);
  /// Ends the process if it still runs, and waits for it.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  Channel& channel() { return channel_; }
  int process() const { return process_; }
  /// Ends the process now and says how it ended: "signal 11", "exit status 3".
  std::string end() noexcept;

 private:
  Child(int process, int handle) : process_(process), channel_(handle) {}
  int process_;
  Channel channel_;
};

/// The folder of the library or program that this code is linked into; "" where the system does not tell.
std::string own_folder();

}  // namespace ocl::os
