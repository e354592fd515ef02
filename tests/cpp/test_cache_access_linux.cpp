// tests/cpp/test_cache_access_linux.cpp: the cache is used only if nobody else can change its file or its folders.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "csrc/cache/kernel_cache.h"
#include "tests/cpp/cache_folder.h"

using ocl::cache::KernelCache;
using namespace cache_test;

namespace {

int mode_of(const std::string& path) {
  struct stat entry{};
  REQUIRE(lstat(path.c_str(), &entry) == 0);
  return entry.st_mode & 07777;
}

}  // namespace

TEST_CASE("folders and files of the cache are this user's alone") {
  Folder folder;
  umask(0);
  const std::string file = folder.path + "/a/b/kernels.db";
  KernelCache cache(file, kBudget);
  cache.store("kernels", "k", "v");
  CHECK(mode_of(folder.path + "/a") == 0700);
  CHECK(mode_of(folder.path + "/a/b") == 0700);
  for (const char* suffix : {"", "-wal", "-shm"}) CHECK(mode_of(file + suffix) == 0600);
  cache.clear();
  std::ofstream(folder.path + "/broken.db") << std::string(20000, 'x');
  chmod((folder.path + "/broken.db").c_str(), 0644);
  KernelCache broken(folder.path + "/broken.db", kBudget);
  broken.store("kernels", "k", "v");
  for (const char* suffix : {"", "-wal", "-shm", ".corrupt", ".lock"})
    CHECK(mode_of(folder.path + "/broken.db" + suffix) == 0600);
}

TEST_CASE("a folder that others can change is not used") {
  Folder folder;
  const std::string inner = folder.path + "/inner", file = inner + "/kernels.db";
  REQUIRE(mkdir(inner.c_str(), 0755) == 0);
  CHECK(is_used(folder, file, ""));  // Other users may read the file.
  for (const mode_t mode : {0775, 0757, 0777, 01777}) {
    REQUIRE(chmod(inner.c_str(), mode) == 0);
    CHECK(!is_used(folder, file, "others can write in the folder " + inner));
  }
  REQUIRE(chmod(inner.c_str(), 0700) == 0);
  SUBCASE("nor one that they could exchange") {
    REQUIRE(chmod(folder.path.c_str(), 0777) == 0);
    CHECK(!is_used(folder, file, "others can write in the folder " + folder.path));
    REQUIRE(chmod(folder.path.c_str(), 01777) == 0);
    // The sticky bit protects our entries, as in /tmp.
    CHECK(is_used(folder, file, ""));
  }
  SUBCASE("nor another user's, nor one in another user's") {
    // Only root can give a folder to another user.
    if (geteuid() != 0) return;
    REQUIRE(chown(inner.c_str(), 12345, 12345) == 0);
    CHECK(!is_used(folder, file, "the folder " + inner + " belongs to user 12345"));
    REQUIRE(chown(inner.c_str(), 0, 0) == 0);
    REQUIRE(chown(folder.path.c_str(), 12345, 12345) == 0);
    CHECK(!is_used(folder, file, folder.path + " belongs to user 12345"));
    REQUIRE(chown(folder.path.c_str(), 0, 0) == 0);
  }
  SUBCASE("nor root's, for someone else") {
    if (geteuid() != 0) return;
    const pid_t child = fork();
    if (child == 0) {
      if (chmod(folder.path.c_str(), 0755) != 0 || setuid(12345) != 0) _exit(2);
      _exit(KernelCache(file, kBudget).stats().problem.find("belongs to user 0") == std::string::npos);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  }
  CHECK(is_used(folder, file, ""));
}

TEST_CASE("symbolic links lead to the folder, if nobody else can change them, and never to the file") {
  Folder folder;
  const std::string real = folder.path + "/real", link = folder.path + "/link";
  REQUIRE(mkdir(real.c_str(), 0700) == 0);
  fs::create_symlink("real", link);
  CHECK(is_used(folder, link + "/kernels.db", ""));
  CHECK(fs::exists(real + "/kernels.db"));
  fs::create_directory_symlink("/tmp/../" + real, folder.path + "/around");
  CHECK(is_used(folder, folder.path + "/around/kernels.db", ""));
  fs::create_symlink("circle", folder.path + "/circle");
  CHECK(!is_used(folder, folder.path + "/circle/kernels.db", "leads nowhere"));
  REQUIRE(mkdir((folder.path + "/open").c_str(), 0777) == 0);
  REQUIRE(chmod((folder.path + "/open").c_str(), 0777) == 0);
  fs::create_symlink("../real", folder.path + "/open/link");
  CHECK(!is_used(folder, folder.path + "/open/link/kernels.db", "others can write in the folder " + folder.path + "/open"));
  // A symbolic link of another user in a folder with the sticky bit.
  if (geteuid() == 0) {
    REQUIRE(chmod((folder.path + "/open").c_str(), 01777) == 0);
    CHECK(is_used(folder, folder.path + "/open/link/kernels.db", ""));
    REQUIRE(lchown((folder.path + "/open/link").c_str(), 12345, 12345) == 0);
    CHECK(!is_used(folder, folder.path + "/open/link/kernels.db", "/open/link belongs to user 12345"));
  }
  fs::create_symlink(real + "/kernels.db", folder.path + "/kernels.db");
  CHECK(!is_used(folder, folder.path + "/kernels.db", "/kernels.db is a symbolic link"));
  fs::create_symlink(real + "/target", real + "/dangling.db");
  CHECK(!is_used(folder, real + "/dangling.db", "is a symbolic link"));
  CHECK(!fs::exists(real + "/target"));
}

TEST_CASE("a file that is not this user's own is not used") {
  Folder folder;
  CHECK(is_used(folder, folder.file(), ""));
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
    const std::string file = folder.file() + suffix;
    for (const char* other : {"", "-wal", "-shm", "-journal"}) fs::remove(folder.file() + other);
    std::ofstream(file).flush();
    REQUIRE(chmod(file.c_str(), 0620) == 0);
    CHECK(!is_used(folder, folder.file(), "others can write to the file " + file));
    if (geteuid() == 0) {
      REQUIRE(chmod(file.c_str(), 0600) == 0);
      REQUIRE(chown(file.c_str(), 12345, 12345) == 0);
      CHECK(!is_used(folder, folder.file(), "the file " + file + " belongs to user 12345"));
    }
    fs::remove(file);
    REQUIRE(mkfifo(file.c_str(), 0600) == 0);
    // Opening the pipe does not wait for its other end.
    CHECK(!is_used(folder, folder.file(), file + " is no regular file"));
    fs::remove(file);
    fs::create_symlink("/dev/null", file);
    CHECK(!is_used(folder, folder.file(), file + " is a symbolic link"));
    fs::remove(file);
  }
  CHECK(is_used(folder, folder.file(), ""));
}
