// tests/cpp/test_support.cpp: hash, log and the system's services.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "csrc/support/hash.h"
#include "csrc/support/log.h"
#include "csrc/support/os.h"

using namespace ocl;

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

TEST_CASE("reserved addresses cannot be read, pages can") {
  const size_t bytes = size_t{1} << 34;
  void* range = os::reserve_addresses(bytes);
  REQUIRE(range);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);  // doctest installs a handler.
    volatile char c = *static_cast<volatile char*>(range);
    _exit(c);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  os::release_addresses(range, bytes);
  auto* pages = static_cast<char*>(os::allocate_pages(1 << 20));
  REQUIRE(pages);
  CHECK(reinterpret_cast<uintptr_t>(pages) % 4096 == 0);
  std::memset(pages, 1, 1 << 20);
  os::free_pages(pages, 1 << 20);
}

TEST_CASE("a library that does not exist gives a reason, not an exception") {
  std::string problem;
  CHECK(os::open_library("/nowhere/libnothing.so", problem) == nullptr);
  CHECK(problem.find("libnothing.so") != std::string::npos);
}

TEST_CASE("a forked child knows that it is one") {
  os::watch_forks();
  CHECK(!os::is_forked_child());
  const pid_t child = fork();
  if (child == 0) _exit(os::is_forked_child() ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(!os::is_forked_child());
}

TEST_CASE("a file lock keeps another process out") {
  const std::string path = (std::filesystem::temp_directory_path() / ("ocl_lock_" + std::to_string(getpid()))).string();
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    os::FileLock lock(path);
    const char byte = 1;
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    usleep(200000);
    std::filesystem::remove(path + ".still_held");
    _exit(0);
  }
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  {
    FILE* file = fopen((path + ".still_held").c_str(), "w");
    REQUIRE(file);
    fclose(file);
    os::FileLock lock(path);
    CHECK(lock.held());
    // The child was done before this process got the lock.
    CHECK(!std::filesystem::exists(path + ".still_held"));
  }
  waitpid(child, nullptr, 0);
  std::filesystem::remove(path);
}

TEST_CASE("a private file is this user's alone, and nothing is written through a link or into a pipe") {
  char name[] = "/tmp/ocl_files_XXXXXX";
  const std::string folder = mkdtemp(name), file = folder + "/file", link = folder + "/link", pipe = folder + "/pipe";
  const mode_t before = umask(0);
  CHECK(os::write_private_file(file, "much text"));
  CHECK(os::write_private_file(file, "text"));
  umask(before);
  std::ifstream in(file);
  CHECK(std::string(std::istreambuf_iterator<char>(in), {}) == "text");
  struct stat entry{};
  REQUIRE(stat(file.c_str(), &entry) == 0);
  CHECK((entry.st_mode & 07777) == 0600);
  std::filesystem::create_symlink(file, link);
  CHECK(!os::write_private_file(link, "other"));
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(!os::write_private_file(pipe, "other"));  // It does not wait, either.
  CHECK(!os::write_private_file(folder + "/none/file", "other"));
  CHECK(std::filesystem::file_size(file) == 4);
  std::filesystem::remove_all(folder);
}

TEST_CASE("a variable that a library cuts in place gets its value back") {
  setenv("OCL_TEST_LIST", "a.so:b.so", 1);
  {
    const os::KeepVariables kept({"OCL_TEST_LIST", "OCL_TEST_MISSING"});
    std::strtok(std::getenv("OCL_TEST_LIST"), ":");
    REQUIRE(std::string(std::getenv("OCL_TEST_LIST")) == "a.so");
  }
  CHECK(std::string(std::getenv("OCL_TEST_LIST")) == "a.so:b.so");
  CHECK(std::getenv("OCL_TEST_MISSING") == nullptr);
}

TEST_CASE("errors are printed nowhere while they are silent, and to the same place afterwards") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const int kept = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  {
    const ocl::os::SilentErrors silent;
    std::fputs("lost", stderr);
  }
  std::fputs("seen", stderr);
  std::fflush(stderr);
  dup2(kept, STDERR_FILENO);
  close(kept);
  close(ends[1]);
  char text[64] = {};
  CHECK(read(ends[0], text, sizeof(text) - 1) == 4);
  CHECK(std::string(text) == "seen");
  close(ends[0]);
}
