// tests/cpp/test_child.cpp: child processes and their messages: long ones, damaged ones, none, and children that end.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "csrc/support/child.h"
#include "tests/cpp/other_process.h"

using namespace ocl;
using os::Channel;
using os::Message;
using os::Received;
using other_process::in_other_process;
using other_process::next;
using other_process::Role;
using other_process::start;
using Clock = std::chrono::steady_clock;

namespace {

const Role kEcho("echo", [](Channel& parent, const Message& arguments) {
  Message message = arguments;
  while (message != Message{"end"}) {
    parent.send(message);
    if (parent.receive(message, std::chrono::seconds(20)) != Received::kMessage) break;
  }
  return Message{"ends"};
});

const Role kSilent("silent", [](Channel&, const Message&) {
  std::this_thread::sleep_for(std::chrono::hours(1));
  return Message{};
});

const Role kNoise("noise", [](Channel& parent, const Message& arguments) {
  parent.send_bytes(arguments[0]);
  return Message{"after the noise"};
});

const Role kEnds("ends", [](Channel&, const Message& arguments) {
  if (arguments[0] == "abort") std::abort();
  os::end_process(std::stoi(arguments[0]));
  return Message{};
});

// Starts a child, the watcher, and sends the watcher's first message to its own parent.
const Role kParent("parent", [](Channel& parent, const Message& arguments) {
  static const auto child = start("watcher", arguments);
  parent.send(next(*child));
  if (arguments[1] == "ends") os::end_process(0);
  std::this_thread::sleep_for(std::chrono::hours(1));
  return Message{};
});

// Holds a lock on a file until its parent ends.
const Role kWatcher("watcher", [](Channel& parent, const Message& arguments) {
  static const os::FileLock lock(arguments[0]);
  parent.send({lock.held() ? "watches" : "no lock"});
  parent.wait_for_end();
  os::end_process(0);
  return Message{};
});

bool ends_soon(const os::Child& child) {
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  while (child.is_running() && Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return !child.is_running();
}

std::string lock_file() {
  return text_of(std::filesystem::temp_directory_path() / ("ocl_child_" + std::to_string(os::process_id())));
}

}  // namespace

TEST_CASE("messages arrive as they were sent: short, empty and long ones") {
  const Message first = {"a", "", std::string("\0\r\n\x1a", 4)};
  const auto child = start("echo", first);
  CHECK(next(*child) == first);
  CHECK(child->is_running());
  for (const size_t bytes : {size_t{1}, size_t{65536}, size_t{5'000'000}}) {
    const Message message = {std::string(bytes, 'x'), "y"};
    // If each side had to send a whole message before it reads, two long messages would block both sides for ever.
    CHECK(child->channel().send(message));
    CHECK(next(*child) == message);
  }
  CHECK(child->channel().send({}));
  CHECK(next(*child) == Message{});
  CHECK(child->channel().send({"end"}));
  CHECK(next(*child) == Message{"ends"});
  CHECK(ends_soon(*child));
  CHECK(child->end() == "exit status 0");
  CHECK(child->end() == "gone");
}

TEST_CASE("a wait for a message ends at its limit, and a message that comes later is not lost") {
  const auto child = start("silent");
  Message message;
  const auto begin = Clock::now();
  CHECK(child->channel().receive(message, std::chrono::milliseconds(200)) == Received::kLate);
  CHECK(Clock::now() - begin >= std::chrono::milliseconds(200));
  CHECK(Clock::now() - begin < std::chrono::seconds(10));
  CHECK(child->is_running());
  const std::string end = child->end();
  CHECK((end == "signal 9" || end == "killed"));
  const auto echo = start("echo", {"one"});
  CHECK(next(*echo) == Message{"one"});
  CHECK(echo->channel().receive(message, std::chrono::milliseconds(50)) == Received::kLate);
  CHECK(echo->channel().send({"two"}));
  CHECK(next(*echo) == Message{"two"});
}

TEST_CASE("bytes that are no message, and damaged messages, are noticed") {
  for (const std::string& noise : {std::string(100, 'x'), std::string(24, '\0')}) {
    const auto child = start("noise", {noise});
    Message message;
    CHECK(child->channel().receive(message, other_process::kPatience) == Received::kGarbage);
  }
  const auto child = start("noise", {"short"});
  Message message;
  CHECK(child->channel().receive(message, other_process::kPatience) == Received::kGarbage);
}

TEST_CASE("the end of a child is noticed, and says how it ended") {
  CHECK(in_other_process("ends", {"7"}) == Message{"ended: exit status 7"});
  const Message aborted = in_other_process("ends", {"abort"});
  CAPTURE(aborted[0]);
  CHECK(
      (aborted[0] == "ended: signal 6" || aborted[0] == "ended: exit status 3" || aborted[0] == "ended: exception 0xC0000409"));
  const auto child = start("ends", {"0"});
  REQUIRE(ends_soon(*child));
  CHECK(!child->channel().send({"to nobody"}));
}

TEST_CASE("a program that does not exist gives a reason") {
  std::string problem;
  CHECK(os::Child::start("/nowhere/worker", false, problem) == nullptr);
  CHECK(problem.find("/nowhere/worker: ") == 0);
}

TEST_CASE("a child sees that its parent closes the channel, ends, or is killed") {
  const std::string file = lock_file();
  {
    const auto child = start("watcher", {file});
    CHECK(next(*child) == Message{"watches"});
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    CHECK(child->is_running());
    child->channel().close();
    CHECK(ends_soon(*child));
  }
  for (const char* how : {"ends", "is killed"}) {
    CAPTURE(how);
    auto parent = start("parent", {file, how});
    CHECK(next(*parent) == Message{"watches"});
    if (how == std::string("ends")) CHECK(ends_soon(*parent));
    parent.reset();
    const os::FileLock lock(file);  // Waits until the grandchild has ended.
    CHECK(lock.held());
  }
  std::filesystem::remove(path_of(file));
}
