// tests/cpp/cache_folder.h: a temporary folder for a cache under test, which collects the warnings of the cache.
#pragma once

#include <doctest/doctest.h>
#include <sqlite3.h>
#if !defined(_WIN32)
#include <sys/stat.h>
#endif

#include <filesystem>
#include <string>
#include <vector>

#include "csrc/cache/kernel_cache.h"
#include "csrc/support/log.h"
#include "tests/cpp/temporary_folder.h"

namespace cache_test {

namespace fs = std::filesystem;

constexpr int64_t kBudget = 64 << 20;

/// A new folder, which is deleted in the destructor. `warnings` collects the log messages while the object exists.
struct Folder {
  Folder() : path(new_folder("ocl_cache")) {
#if !defined(_WIN32)
    // Files that the test itself writes get the usual permissions of a user's files.
    umask(022);
#endif
    ocl::set_log_sink([this](ocl::LogLevel level, const char*, const std::string& message) {
      if (level >= ocl::LogLevel::kWarning) warnings.push_back(message);
    });
  }
  ~Folder() {
    ocl::set_log_sink({});
    fs::permissions(path, fs::perms::owner_all);
    fs::remove_all(path);
  }
  std::string file() const { return path + "/kernels.db"; }
  std::string path;
  std::vector<std::string> warnings;
};

/// Executes SQL on the database file directly, without the cache.
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

/// Checks whether a cache at `path` is used. If not, its only warning must contain `reason`.
inline bool is_used(Folder& folder, const std::string& path, const std::string& reason) {
  folder.warnings.clear();
  ocl::cache::KernelCache cache(path, kBudget);
  cache.store("kernels", "k", "v");
  const bool found = cache.find("kernels", "k") == "v";
  CHECK(cache.stats().enabled == found);
  CHECK(folder.warnings.size() == (found ? 0 : 1));
  for (const std::string& warning : folder.warnings) {
    INFO(warning);
    CHECK(warning.find("is not used: ") != std::string::npos);
    CHECK(warning.find(reason) != std::string::npos);
    CHECK(warning.find('\n') == std::string::npos);
  }
  return found;
}

}  // namespace cache_test
