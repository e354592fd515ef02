// tests/cpp/test_support_linux.cpp: forks, permissions of files, and a standard error output that is a pipe.
#include <doctest/doctest.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "csrc/support/os.h"

using namespace ocl;
namespace fs = std::filesystem;

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

TEST_CASE("the usable cores are those that this process may run on") {
  const std::vector<uint64_t> all = os::usable_cores();
  REQUIRE(!all.empty());
  cpu_set_t before, one;
  CPU_ZERO(&one);
  CPU_SET(all.back(), &one);
  REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
  REQUIRE(sched_setaffinity(0, sizeof(one), &one) == 0);
  CHECK(os::usable_cores() == std::vector{all.back()});
  sched_setaffinity(0, sizeof(before), &before);
  CHECK(os::usable_cores() == all);
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
  fs::create_symlink(file, link);
  CHECK(!os::write_private_file(link, "other"));
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(!os::write_private_file(pipe, "other"));  // Writing to the pipe fails at once, instead of waiting for a reader.
  CHECK(!os::write_private_file(folder + "/none/file", "other"));
  CHECK(fs::file_size(file) == 4);
  fs::remove_all(folder);
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
