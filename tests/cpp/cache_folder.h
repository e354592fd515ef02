// tests/cpp/cache_folder.h: a folder for a cache under test, with the warnings that the cache gives.
#pragma once

#include <doctest/doctest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "csrc/support/log.h"

namespace cache_test {

namespace fs = std::filesystem;

constexpr int64_t kBudget = 64 << 20;

/// A fresh folder, and the warnings given while it lives.
struct Folder {
  Folder() {
    char name[] = "/tmp/ocl_cache_XXXXXX";
    path = mkdtemp(name);
    umask(022);  // what a test writes itself is a user's file as usual
    ocl::set_log_sink([this](ocl::LogLevel level, const char*, const std::string& message) {
      if (level >= ocl::LogLevel::kWarning) warnings.push_back(message);
    });
  }
  ~Folder() {
    ocl::set_log_sink({});
    chmod(path.c_str(), 0700);
    fs::remove_all(path);
  }
  std::string file() const { return path + "/kernels.db"; }
  std::string path;
  std::vector<std::string> warnings;
};

/// Runs SQL past the cache.
inline void sql(const std::string& file, const std::string& text) {
  sqlite3* db = nullptr;
  REQUIRE(sqlite3_open(file.c_str(), &db) == SQLITE_OK);
  sqlite3_busy_timeout(db, 5000);
  char* error = nullptr;
  const int code = sqlite3_exec(db, text.c_str(), nullptr, nullptr, &error);
  INFO((error ? error : ""));
  REQUIRE(code == SQLITE_OK);
  sqlite3_close(db);
}

inline std::string bytes(size_t count, char seed) {
  std::string value(count, '\0');
  for (size_t i = 0; i < count; ++i) value[i] = static_cast<char>(seed + i * 7 + i / 256);
  return value;
}

inline int wait_code(pid_t child) {
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace cache_test
