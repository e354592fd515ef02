// tests/cpp/test_support.cpp: hash, log and the system's services.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "csrc/support/build_id.h"
#include "csrc/support/hash.h"
#include "csrc/support/log.h"
#include "csrc/support/os.h"
#include "tests/cpp/other_process.h"
#include "tests/cpp/temporary_folder.h"

using namespace ocl;
using os::Message;
namespace fs = std::filesystem;

TEST_CASE("the hash is the published one, for every length of the tail") {
  CHECK(hash_hex("") == "00000000000000000000000000000000");
  // These are values of MurmurHash3_x64_128, whose reference prints the low half first.
  const Hash128 fox = hash128("The quick brown fox jumps over the lazy dog");
  CHECK(fox.low == 0xe34bbc7bbc071b6cULL);
  CHECK(fox.high == 0x7a433ca9c49a9347ULL);
  std::set<std::string> seen;
  const std::string zeros(40, '\0');
  for (size_t n = 0; n <= zeros.size(); ++n) seen.insert(hash_hex(zeros.substr(0, n)));
  CHECK(seen.size() == zeros.size() + 1);  // Zeros of different lengths have different hashes.
  std::string text = "0123456789abcdef0123456789abcde";
  for (char& c : text) {
    c ^= 1;
    CHECK(seen.insert(hash_hex(text)).second);
  }
}

TEST_CASE("messages below the level are dropped, the rest reaches the sink") {
  std::vector<std::string> got;
  set_log_sink([&](LogLevel level, const char* area, const std::string& message) {
    got.push_back(std::to_string(static_cast<int>(level)) + " " + area + " " + message);
  });
  log_message(LogLevel::kInfo, "runtime", "quiet");
  log_message(LogLevel::kWarning, "cache", "heard");
  set_log_level(LogLevel::kDebug);
  CHECK(log_enabled(LogLevel::kDebug));
  log_message(LogLevel::kDebug, "runtime", "now");
  set_log_level(LogLevel::kWarning);
  set_log_sink({});
  CHECK(got == std::vector<std::string>{"30 cache heard", "10 runtime now"});
}

TEST_CASE("a sink may log and may replace itself") {
  int calls = 0;
  set_log_sink([&](LogLevel, const char*, const std::string& message) {
    if (++calls == 1) log_message(LogLevel::kError, "runtime", "inner");
    if (message == "inner") set_log_sink([](LogLevel, const char*, const std::string&) {});
  });
  log_message(LogLevel::kError, "runtime", "outer");
  log_message(LogLevel::kError, "runtime", "to the new sink");
  set_log_sink({});
  CHECK(calls == 2);
}

namespace {

const other_process::Role kReader("reader of reserved addresses", [](os::Channel&, const Message&) {
  const volatile char c = *static_cast<volatile char*>(os::reserve_addresses(size_t{1} << 34));
  return Message{"read " + std::to_string(c)};
});

const other_process::Role kHolder("holder of a file lock", [](os::Channel& parent, const Message& arguments) {
  const os::FileLock lock(arguments[0]);
  parent.send({lock.held() ? "held" : "not held"});
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  fs::remove(path_of(arguments[0] + ".still_held"));
  return Message{};
});

const other_process::Role kByteHolder("holder of byte locks", [](os::Channel& parent, const Message& arguments) {
  os::ByteLocks locks(arguments[0]);
  const bool good = locks.take(5) == os::ByteLocks::Taken::kYes && locks.take(~uint64_t{0}) == os::ByteLocks::Taken::kYes &&
                    locks.take(7) == os::ByteLocks::Taken::kYes;
  locks.release(7);
  parent.send({good ? "held" : "not held"});
  parent.wait_for_end();
  return Message{};
});

const other_process::Role kPrinter("printer of errors", [](os::Channel&, const Message&) {
  if (!std::freopen(std::getenv("OCL_TEST_FILE"), "wb", stderr)) return Message{"no file"};
  {
    const os::SilentErrors silent;
    std::fputs("lost", stderr);
  }
  std::fputs("seen", stderr);
  std::fflush(stderr);
  return Message{"printed"};
});

}  // namespace

TEST_CASE("reserved addresses cannot be read, pages can") {
  CHECK(other_process::is_bad_access(other_process::in_other_process("reader of reserved addresses")));
  for (const size_t bytes : {size_t{1} << 34, size_t{1} << 38}) {  // A process on Arm may have 39 bits of addresses.
    void* range = os::reserve_addresses(bytes);
    REQUIRE(range);
    os::release_addresses(range, bytes);
  }
  auto* pages = static_cast<char*>(os::allocate_pages(1 << 20));
  REQUIRE(pages);
  CHECK(reinterpret_cast<uintptr_t>(pages) % 4096 == 0);
  CHECK(pages[12345] == 0);
  std::memset(pages, 1, 1 << 20);
  os::free_pages(pages, 1 << 20);
  CHECK(os::available_memory_bytes() > 1 << 20);
}

TEST_CASE("a library that does not exist gives a reason, not an exception") {
  std::string problem;
  CHECK(os::open_library("/nowhere/libnothing.so", problem) == nullptr);
  CHECK(problem.find("libnothing.so") != std::string::npos);
  CHECK(problem.find('\n') == std::string::npos);
  CHECK(os::library_symbol(nullptr, "no_such_function") == nullptr);
}

TEST_CASE("a file lock keeps another process out") {
  const std::string folder = new_folder("ocl_lock"), path = folder + "/lock";
  const auto child = other_process::start("holder of a file lock", {path});
  std::ofstream(path_of(path + ".still_held")).flush();
  CHECK(other_process::next(*child) == Message{"held"});
  {
    const os::FileLock lock(path);
    CHECK(lock.held());
    // The child had released the lock, and deleted this file, before this process got the lock.
    CHECK(!fs::exists(path_of(path + ".still_held")));
  }
  CHECK(!os::FileLock(folder + "/none/lock").held());
  other_process::next(*child);
  fs::remove_all(path_of(folder));
}

TEST_CASE("locks on bytes exclude other processes, byte by byte, and end with their process") {
  using Taken = os::ByteLocks::Taken;
  const std::string folder = new_folder("ocl_bytes"), path = folder + "/bytes";
  {
    os::ByteLocks locks(path);
    auto child = other_process::start("holder of byte locks", {path});
    CHECK(other_process::next(*child) == Message{"held"});
    CHECK(locks.take(5) == Taken::kNo);
    CHECK(locks.take(~uint64_t{0}) == Taken::kNo);
    CHECK(locks.take(4) == Taken::kYes);
    CHECK(locks.take(6) == Taken::kYes);
    CHECK(locks.take(6) == Taken::kYes);
    CHECK(locks.take(7) == Taken::kYes);
    child.reset();
    CHECK(locks.take(5) == Taken::kYes);
    CHECK(os::ByteLocks(folder + "/none/bytes").take(0) == Taken::kUnsupported);
  }
  fs::remove_all(path_of(folder));
}

TEST_CASE("a private file is written anew, and only as a file") {
  const std::string folder = new_folder("ocl_files_\xc3\xa4"), file = folder + "/file";
  CHECK(os::first_line(file) == "");
  CHECK(os::write_private_file(file, "much text, in one line"));
  CHECK(os::first_line(file) == "much text, in one line");
  CHECK(os::write_private_file(file, "text\r\nmore"));
  CHECK(os::first_line(file) == "text");
  CHECK(fs::file_size(path_of(file)) == 10);
  CHECK(os::private_file_problem(file) == "");
  CHECK(os::private_file_problem(folder + "/missing") == "");
  CHECK(os::private_file_problem(folder) == folder + " is no regular file");
  CHECK(os::make_private_file(folder + "/made") == "");
  CHECK(fs::exists(path_of(folder + "/made")));
  CHECK(os::make_private_file(folder + "/none/made").find("cannot be made: ") != std::string::npos);
  CHECK(!os::write_private_file(folder + "/none/file", "other"));
  CHECK(!os::write_private_file(folder, "other"));
  fs::remove_all(path_of(folder));
}

TEST_CASE("a private folder is made with the folders above it") {
  const std::string folder = new_folder("ocl_folders");
  const os::PrivateFolder made = os::private_folder(folder + "/a/./b/../c");
  CHECK(made.problem == "");
  CHECK(fs::equivalent(path_of(made.path), path_of(folder) / "a" / "c"));
  CHECK(os::private_folder(folder + "/a/c/").problem == "");
  CHECK(os::write_private_file(folder + "/file", "text"));
  CHECK(os::private_folder(folder + "/file/a").problem.find("is no folder") != std::string::npos);
  fs::remove_all(path_of(folder));
}

TEST_CASE("a variable that a library cuts in place gets its value back") {
  other_process::set_variable("OCL_TEST_LIST", "a.so:b.so");
  {
    const os::KeepVariables kept({"OCL_TEST_LIST", "OCL_TEST_MISSING"});
    std::strtok(std::getenv("OCL_TEST_LIST"), ":");
    REQUIRE(std::string(std::getenv("OCL_TEST_LIST")) == "a.so");
  }
  CHECK(std::string(std::getenv("OCL_TEST_LIST")) == "a.so:b.so");
  CHECK(std::getenv("OCL_TEST_MISSING") == nullptr);
}

TEST_CASE("errors are printed nowhere while they are silent, and to the same place afterwards") {
  const std::string folder = new_folder("ocl_errors"), file = folder + "/errors";
  other_process::set_variable("OCL_TEST_FILE", file);
  CHECK(other_process::in_other_process("printer of errors") == Message{"printed"});
  CHECK(os::first_line(file) == "seen");
  fs::remove_all(path_of(folder));
}

#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("expensive-optimizations")))  // Of these is the fused multiply-add. Tests are compiled with -O1.
#endif
double square_plus(double x, double y) {
  return x * x + y;
}

TEST_CASE("a product is rounded before a sum, on every processor") {
  const volatile double x = 1 + 0x1p-30, y = -(1 + 0x1p-29);
  CHECK(square_plus(x, y) == 0);
}

TEST_CASE("a thread's number is its own, and its time grows") {
  int64_t other = 0;
  std::thread([&] { other = os::thread_id(); }).join();
  CHECK(other != os::thread_id());
  CHECK(os::thread_id() == os::thread_id());
  const double begin = os::thread_seconds();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (os::thread_seconds() == begin && std::chrono::steady_clock::now() < deadline) continue;
  CHECK(os::thread_seconds() > begin);
  CHECK(os::process_id() > 0);
}

TEST_CASE("a program that is linked with an identifier knows it") { CHECK(build_id().size() >= 32); }
