// csrc/cache/kernel_cache.h: kernel binaries, plans and tuning results in one SQLite file per user.
//
// Many processes use the file at once (WAL). A call waits shortly for a locked file. A corrupt file is moved aside and
// replaced. A locked or unwritable file disables the cache, with one warning. No call ever throws because of the cache. The
// file holds native code, so the cache is also disabled if others can change its folder or its file (os::private_folder). New
// files are readable for this user only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ocl::cache {

struct CacheStats {
  bool enabled = false;
  std::string path, problem;  // `problem` says why the cache is disabled or was replaced; "" if neither.
  int64_t entries = 0, bytes = 0, hits = 0, misses = 0, stores = 0, evictions = 0, rejected = 0;
};

/// Number and size of the entries of one table.
struct TableStats {
  std::string table;
  int64_t entries = 0, bytes = 0;
};

/// Result of verify() or prune().
struct CleanupResult {
  int64_t kept = 0, deleted = 0;  // Number of entries.
  std::string problem;            // Why the call stopped early; "" if it did not.
};

/// Byte strings by (table, key). The tables are "kernels", "eager" (plans of single ops), "graphs" (whole graphs of
/// torch.compile) and "tuning". Thread-safe.
class KernelCache {
 public:
  /// An empty `path` makes a cache that stores nothing. Never throws.
  KernelCache(std::string path, int64_t budget_bytes);
  ~KernelCache();
  // Returns "" if there is no entry. Deletes an entry whose checksum is wrong.
  std::string find(const char* table, const std::string& key);
  /// Returns all (key, value) pairs of a table, except pairs with a wrong checksum.
  std::vector<std::pair<std::string, std::string>> entries(const char* table);
  void store(const char* table, const std::string& key, const std::string& value);
  void erase(const char* table, const std::string& key);
  void clear();
  /// Tells other processes that this one makes the kernel `key`. Returns false if another process is making it. Returns true if
  /// the cache is disabled or its file system has no locks. A claim ends with release() or with the process.
  bool claim(const std::string& key);
  void release(const std::string& key);
  std::vector<std::string> keys(const char* table);
  /// Returns the keys of the entries that this process has found or stored, in order.
  std::vector<std::string> used(const char* table);
  std::vector<TableStats> tables();
  /// Reads every entry and deletes entries whose checksum is wrong.
  CleanupResult verify();
  /// Deletes entries that were not used for `unused_ms` milliseconds. Then deletes the least recently used entries
  /// until the others have at most `most_bytes` bytes. A negative number sets no limit.
  CleanupResult prune(int64_t most_bytes, int64_t unused_ms);
  CacheStats stats();
  /// Moves what this process has stored from SQLite's log into the file, so that the file alone is the cache. It waits for no
  /// other process. Does nothing in a forked child.
  void checkpoint();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ocl::cache
