// tests/cpp/other_process.h: runs functions of a test program in other processes. It contains main(), so a test that includes
// it defines DOCTEST_CONFIG_IMPLEMENT.
//
//   const Role add("add", [](os::Channel&, const os::Message& numbers) { return os::Message{...}; });
//   TEST_CASE("...") { CHECK(in_other_process("add", {"1", "2"}) == ...); }
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include "csrc/support/child.h"
#include "csrc/support/os.h"
#include "csrc/support/path.h"

namespace other_process {

using Function = std::function<ocl::os::Message(ocl::os::Channel& parent, const ocl::os::Message& arguments)>;

inline std::map<std::string, Function>& functions() {
  static std::map<std::string, Function> all;
  return all;
}

/// Registers a function under a name, so that start() can run it in another process, which sends its result to the
/// parent.
struct Role {
  Role(const char* name, Function function) { functions()[name] = std::move(function); }
};

inline std::string& program() {
  static std::string path;
  return path;
}

/// Sets an environment variable of this process and of children that it starts later; "" deletes the variable.
inline void set_variable(const char* name, const std::string& value) {
#if defined(_WIN32)
  _putenv_s(name, value.c_str());
#else
  if (value.empty())
    unsetenv(name);
  else
    setenv(name, value.c_str(), 1);
#endif
}

constexpr const char* kMark = "OCL_TEST_ROLE";
constexpr std::chrono::seconds kPatience{60};

/// Starts this program as a child process that runs the function of a Role.
inline std::unique_ptr<ocl::os::Child> start(const std::string& role, ocl::os::Message arguments = {}) {
  set_variable(kMark, "1");
  std::string problem;
  std::unique_ptr<ocl::os::Child> child = ocl::os::Child::start(program(), true, problem);
  set_variable(kMark, "");
  arguments.insert(arguments.begin(), role);
  // An exception, and no check of doctest, because a function of a Role, which runs outside of doctest, may call this.
  if (!child || !child->channel().send(arguments)) throw std::runtime_error("the role " + role + " does not start: " + problem);
  return child;
}

/// Returns the next message of a child. If the child has ended, returns "ended: " and how.
inline ocl::os::Message next(ocl::os::Child& child) {
  ocl::os::Message message;
  if (child.channel().receive(message, kPatience) == ocl::os::Received::kMessage) return message;
  return {"ended: " + child.end()};
}

inline ocl::os::Message in_other_process(const std::string& role, ocl::os::Message arguments = {}) {
  return next(*start(role, std::move(arguments)));
}

/// True if a process ended because of an access to memory that it must not access. `end` is a result of next().
inline bool is_bad_access(const ocl::os::Message& end) {
  return end == ocl::os::Message{"ended: signal 11"} || end == ocl::os::Message{"ended: exception 0xC0000005"};
}

inline int play_role() {
  std::signal(SIGSEGV, SIG_DFL);  // Removes the handler that a sanitizer installs.
  static const std::unique_ptr<ocl::os::Channel> parent = ocl::os::parent_channel();
  ocl::os::Message arguments;
  if (parent->receive(arguments, kPatience) != ocl::os::Received::kMessage) return 2;
  const Function function = functions().at(arguments.front());
  arguments.erase(arguments.begin());
  return parent->send(function(*parent, arguments)) ? 0 : 3;
}

}  // namespace other_process

int main(int argc, char** argv) {
  other_process::program() = ocl::text_of(std::filesystem::absolute(argv[0]));
  if (std::getenv(other_process::kMark)) ocl::os::end_process(other_process::play_role());
  return doctest::Context(argc, argv).run();
}
