// csrc/cache/kernel_cache.h: binaries, plans and tuning results in one SQLite file per user.
// Activation: open(path, budget_bytes). Concurrency: WAL, many processes; a busy file is waited for shortly. A corrupt file is
// moved aside and begun anew; a locked or unwritable one disables the cache with one warning. Nothing ever fails because of it.
// Trust: it holds native code. A folder or file that others can change disables it as well (os::private_folder); what it makes
// is for this user alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ocl::cache {

struct CacheStats {
  bool enabled = false;
  std::string path, problem;  // problem: why it is disabled or was begun anew, "" if all is well
  int64_t entries = 0, bytes = 0, hits = 0, misses = 0, stores = 0, evictions = 0, rejected = 0;
};

/// What one table holds.
struct TableStats {
  std::string table;
  int64_t entries = 0, bytes = 0;
};

/// What verify() or prune() did.
struct Cleaned {
  int64_t kept = 0, deleted = 0;  // entries
  std::string problem;            // why it stopped, "" if it did not
};

/// A store of byte strings by (table, key). Tables: "kernels", "eager" (plans of single ops), "graphs" (of
/// torch.compile, whole), "tuning". Thread-safe.
class KernelCache {
 public:
  /// `path` "" keeps nothing. Never throws.
  KernelCache(std::string path, int64_t budget_bytes);
  ~KernelCache();
  std::string find(const char* table, const std::string& key);  // "" when absent; verifies a checksum, deletes a bad entry
  /// All (key, value) of a table; those with a wrong checksum are left out.
  std::vector<std::pair<std::string, std::string>> entries(const char* table);
  void store(const char* table, const std::string& key, const std::string& value);
  void erase(const char* table, const std::string& key);
  void clear();
  std::vector<std::string> keys(const char* table);
  /// Keys of the entries that this process has found or stored, in order.
  std::vector<std::string> used(const char* table);
  std::vector<TableStats> tables();
  /// Reads every entry and deletes those with a wrong checksum.
  Cleaned verify();
  /// Deletes entries that were not used for `unused_ms` milliseconds, then the least recently used ones until the rest has at
  /// most `most_bytes`. A negative number sets no limit.
  Cleaned prune(int64_t most_bytes, int64_t unused_ms);
  CacheStats stats();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ocl::cache
