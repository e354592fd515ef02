// tests/cpp/test_cache_forks_linux.cpp: a process that uses the cache forks.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "csrc/cache/kernel_cache.h"
#include "tests/cpp/cache_folder.h"

using ocl::cache::KernelCache;
using namespace cache_test;

TEST_CASE("a forked child and its parent both go on") {
  Folder folder;
  KernelCache cache(folder.file(), kBudget);
  cache.store("kernels", "before", "v");
  const pid_t child = fork();
  if (child == 0) {
    bool good = cache.find("kernels", "before") == "v";
    for (int i = 0; i < 20; ++i) cache.store("kernels", "child" + std::to_string(i), "c");
    good = good && cache.find("kernels", "child19") == "c";
    _exit(good ? 0 : 1);
  }
  for (int i = 0; i < 20; ++i) cache.store("kernels", "parent" + std::to_string(i), "p");
  int status = -1;
  waitpid(child, &status, 0);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  CHECK(cache.find("kernels", "parent19") == "p");
  CHECK(cache.find("kernels", "child19") == "c");
  CHECK(cache.stats().entries == 41);
}

TEST_CASE("a forked child cannot claim what its parent has claimed") {
  Folder folder;
  KernelCache cache(folder.file(), kBudget);
  CHECK(cache.claim("ours"));
  CHECK(cache.claim("ours"));  // Threads of a process do not exclude each other.
  int ready[2], end[2];
  REQUIRE(pipe(ready) == 0);
  REQUIRE(pipe(end) == 0);
  const pid_t child = fork();
  if (child == 0) {
    close(end[1]);
    const bool good = !cache.claim("ours") && cache.claim("theirs") && cache.claim("released");
    cache.release("released");
    char byte = good ? 'y' : 'n';
    if (write(ready[1], &byte, 1) == 1) (void)!read(end[0], &byte, 1);  // Waits until it is killed.
    _exit(0);
  }
  char answer = 0;
  REQUIRE(read(ready[0], &answer, 1) == 1);
  CHECK(answer == 'y');
  CHECK_FALSE(cache.claim("theirs"));
  CHECK(cache.claim("released"));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(cache.claim("theirs"));
  for (const int file : {ready[0], ready[1], end[0], end[1]}) close(file);
}
