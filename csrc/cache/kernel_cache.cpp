// csrc/cache/kernel_cache.cpp: lookup, eviction and repair of the cache. A process has one connection, opened at the
// first use and again after a fork.
#include "csrc/cache/kernel_cache.h"

#include <chrono>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/cache/connection.h"
#include "csrc/support/log.h"
#include "csrc/support/os.h"
#include "csrc/support/path.h"

namespace ocl::cache {
namespace {

// Least time between two refreshes of an entry's `used` in ms, so that most reads write nothing.
constexpr int64_t kUsedStepMs = 3600 * 1000;
// The size of the cache is checked after this many stores, and when a process opens the file.
constexpr int kStoresPerCheck = 16;
// An eviction deletes entries until they take this share of the budget.
constexpr double kFullTo = 0.9;

}  // namespace

struct KernelCache::State {
  State(std::string path_, int64_t budget_) : path(std::move(path_)), budget(budget_) {}

  ~State() {
    std::lock_guard lock(mutex);
    if (!connection) return;
    if (connection->process == os::process_id())
      write_touched();
    else
      // This connection belongs to the parent process. Closing it here would drop the parent's locks.
      (void)connection.release();
  }

  /// Returns true if there is a usable connection. Opens one at the first use and in a forked child.
  bool ready() {
    if (disabled || path.empty()) return false;
    if (connection && connection->process == os::process_id()) return true;
    if (connection) (void)connection.release();
    touched.clear();
    claims.reset();
    return open();
  }

  bool open() {
    const std::filesystem::path given = path_of(path);
    const os::PrivateFolder folder = os::private_folder(given.has_parent_path() ? text_of(given.parent_path()) : ".");
    std::string message = folder.problem;
    file = folder.path + "/" + text_of(given.filename());
    for (const char* suffix : {"", "-wal", "-shm", "-journal", ".building"})
      if (message.empty()) message = os::private_file_problem(file + suffix);
    if (!message.empty()) {
      disable("is not used: " + message);
      return false;
    }
    auto opened = std::make_unique<Connection>();
    const int64_t begin = now_ms();
    int code = open_file(file, *opened, message);
    // When two processes turn a new file into WAL at once, SQLite returns "busy" to one of them without waiting.
    while (is_busy(code) && now_ms() - begin < kBusyMs) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      opened = std::make_unique<Connection>();
      code = open_file(file, *opened, message);
    }
    if (is_corruption(code)) {
      opened.reset();
      return replace_corrupt_file(message);
    }
    if (code != SQLITE_OK) {
      disable("does not open: " + message);
      return false;
    }
    connection = std::move(opened);
    stores_since_check = kStoresPerCheck;  // Check the size at the next store: another process may have left too much.
    return true;
  }

  /// Moves a corrupt file aside. Several processes may try at once, so each takes a lock and checks the file again.
  bool replace_corrupt_file(const std::string& reason) {
    connection.reset();
    if (begun_anew) {
      disable("is corrupt again: " + reason);
      return false;
    }
    begun_anew = true;
    const os::FileLock lock(file + ".lock");
    std::string message;
    auto opened = std::make_unique<Connection>();
    int code = open_file(file, *opened, message);
    if (code == SQLITE_OK) {
      const int64_t bad = scalar(opened->db, "SELECT count(*) FROM pragma_quick_check(1) WHERE quick_check <> 'ok'", code);
      if (bad > 0) code = SQLITE_CORRUPT;
    }
    if (code != SQLITE_OK) {
      if (!is_corruption(code)) {
        disable("does not open: " + message);
        return false;
      }
      opened = std::make_unique<Connection>();  // Closes the corrupt file.
      std::error_code error;
      std::filesystem::rename(path_of(file), path_of(file + ".corrupt"), error);
      if (error) {
        disable("is corrupt and cannot be moved aside: " + error.message());
        return false;
      }
      for (const char* suffix : {"-wal", "-shm"}) std::filesystem::remove(path_of(file + suffix), error);
      problem = "was corrupt (" + reason + "); it is now " + file + ".corrupt, and a new one was begun";
      log_message(LogLevel::kWarning, "cache", "the kernel cache " + path + " " + problem);
      code = open_file(file, *opened, message);
      if (code != SQLITE_OK) {
        disable("does not open: " + message);
        return false;
      }
    }
    connection = std::move(opened);
    return true;
  }

  void disable(const std::string& reason) {
    disabled = true;
    problem = reason;
    connection.reset();
    log_message(LogLevel::kWarning, "cache",
                "the kernel cache " + path + " " + reason + "; going on without it: kernels are compiled in each process");
  }

  /// Handles a failed statement: replaces a corrupt file, or disables the cache. Never throws.
  void failed(int code, const char* doing) {
    const std::string message = connection ? sqlite3_errmsg(connection->db) : sqlite3_errstr(code);
    if (is_corruption(code))
      replace_corrupt_file(message);
    else
      disable(std::string(is_busy(code) ? "is locked by another process" : "failed") + " while " + doing + ": " + message);
  }

  void write_touched() {
    if (touched.empty() || !connection) return;
    const int64_t now = now_ms();
    if (sqlite3_exec(connection->db, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) == SQLITE_OK) {
      for (int64_t id : touched) Use(connection->touch).number(1, id).number(2, now).step();
      sqlite3_exec(connection->db, "COMMIT", nullptr, nullptr, nullptr);
    }
    // If the file is busy, the times are lost. Being an hour off does no harm.
    touched.clear();
  }

  int64_t total_bytes() {
    Use use(connection->total);
    return use.step() == SQLITE_ROW ? sqlite3_column_int64(use.get(), 0) : 0;
  }

  int64_t entry_count() {
    Use use(connection->count);
    return use.step() == SQLITE_ROW ? sqlite3_column_int64(use.get(), 0) : 0;
  }

  /// Deletes old entries until `coming` bytes fit into the budget.
  int make_room(int64_t coming) {
    if (total_bytes() + coming <= budget) return SQLITE_OK;
    int64_t deleted = 0;
    const int code = delete_oldest(static_cast<int64_t>(kFullTo * static_cast<double>(budget)) - coming, 0, deleted);
    stats.evictions += deleted;
    return code;
  }

  /// Deletes entries that were last used before `used_before` (unix time in ms). Then deletes the least recently used
  /// entries until the others have at most `most_bytes` bytes.
  int delete_oldest(int64_t most_bytes, int64_t used_before, int64_t& deleted) {
    write_touched();
    std::vector<int64_t> victims;
    {
      int64_t total = total_bytes();
      Use use(connection->oldest);
      while (use.step() == SQLITE_ROW && (total > most_bytes || sqlite3_column_int64(use.get(), 2) < used_before)) {
        victims.push_back(sqlite3_column_int64(use.get(), 0));
        total -= sqlite3_column_int64(use.get(), 1);
      }
    }
    return delete_rows(victims, deleted);
  }

  int delete_rows(const std::vector<int64_t>& ids, int64_t& deleted) {
    if (ids.empty()) return SQLITE_OK;
    int code = sqlite3_exec(connection->db, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr);
    if (code != SQLITE_OK) return code;
    for (const int64_t id : ids)
      if (Use(connection->erase_row).number(1, id).step() == SQLITE_DONE) ++deleted;
    code = sqlite3_exec(connection->db, "COMMIT", nullptr, nullptr, nullptr);
    if (code == SQLITE_OK) sqlite3_exec(connection->db, "PRAGMA incremental_vacuum", nullptr, nullptr, nullptr);
    return code;
  }

  /// Handles an error of verify() or prune(), and returns their result.
  CleanupResult cleaned(int code, int64_t deleted, const char* doing) {
    if (code != SQLITE_OK && code != SQLITE_DONE) failed(code, doing);
    return {connection ? entry_count() : 0, deleted, problem};
  }

  const std::string path;  // The path as the caller gave it.
  const int64_t budget;
  std::mutex mutex;
  std::string file;  // `path` without symbolic links; set when the folder has been checked.
  std::unique_ptr<Connection> connection;
  std::unique_ptr<os::ByteLocks> claims;  // The claims of this process; made with the first claim.
  bool disabled = false, begun_anew = false;
  std::string problem;
  std::set<int64_t> touched;                          // Ids of rows whose `used` is to be refreshed.
  std::map<std::string, std::set<std::string>> used;  // Keys that this process has found or stored, by table.
  int stores_since_check = 0;
  CacheStats stats;
};

namespace {

/// Returns the byte of the file of claims that stands for a key.
uint64_t position_of(const std::string& key) { return static_cast<uint64_t>(checksum(key, "", 0)); }

}  // namespace

KernelCache::KernelCache(std::string path, int64_t budget_bytes)
    : state_(std::make_unique<State>(std::move(path), budget_bytes)) {}
KernelCache::~KernelCache() = default;

std::string KernelCache::find(const char* table, const std::string& key) {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  if (!s.ready()) return "";
  std::string value;
  bool bad = false;
  int code = SQLITE_OK;
  {
    Use use(s.connection->find);
    code = use.text(1, table).text(2, key).step();
    if (code == SQLITE_ROW) {
      const void* data = sqlite3_column_blob(use.get(), 1);
      const auto bytes = static_cast<size_t>(sqlite3_column_bytes(use.get(), 1));
      bad = sqlite3_column_int64(use.get(), 2) != checksum(key, data, bytes);
      if (!bad && bytes) value.assign(static_cast<const char*>(data), bytes);
      if (!bad && now_ms() - sqlite3_column_int64(use.get(), 3) > kUsedStepMs)
        s.touched.insert(sqlite3_column_int64(use.get(), 0));
    }
  }
  if (bad) {
    ++s.stats.rejected;
    log_message(LogLevel::kInfo, "cache", "entry " + key + " of " + s.path + " has a wrong checksum and is deleted");
    code = Use(s.connection->erase).text(1, table).text(2, key).step();
  }
  if (code != SQLITE_ROW && code != SQLITE_DONE) s.failed(code, "reading");
  ++(value.empty() ? s.stats.misses : s.stats.hits);
  if (!value.empty()) s.used[table].insert(key);
  return value;
}

std::vector<std::pair<std::string, std::string>> KernelCache::entries(const char* table) {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  std::vector<std::pair<std::string, std::string>> found;
  if (!s.ready()) return found;
  int code = SQLITE_OK;
  {
    Use use(s.connection->table);
    use.text(1, table);
    while ((code = use.step()) == SQLITE_ROW) {
      const auto* key = reinterpret_cast<const char*>(sqlite3_column_text(use.get(), 0));
      const void* data = sqlite3_column_blob(use.get(), 1);
      const auto bytes = static_cast<size_t>(sqlite3_column_bytes(use.get(), 1));
      if (sqlite3_column_int64(use.get(), 2) != checksum(key, data, bytes))
        ++s.stats.rejected;
      else
        found.emplace_back(key, std::string(static_cast<const char*>(data), bytes));
    }
  }
  if (code != SQLITE_DONE) s.failed(code, "reading");
  return found;
}

void KernelCache::store(const char* table, const std::string& key, const std::string& value) {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  const auto bytes = static_cast<int64_t>(value.size() + key.size());
  if (bytes > s.budget || value.empty() || !s.ready()) return;
  int code = SQLITE_OK;
  if (++s.stores_since_check >= kStoresPerCheck || 2 * kStoresPerCheck * bytes > s.budget) {
    s.stores_since_check = 0;
    code = s.make_room(bytes);
    if (!s.touched.empty()) s.write_touched();
  }
  if (code == SQLITE_OK) {
    const int64_t sum = checksum(key, value.data(), value.size());
    code = Use(s.connection->store)
               .text(1, table)
               .text(2, key)
               .blob(3, value)
               .number(4, sum)
               .number(5, bytes)
               .number(6, now_ms())
               .step();
  }
  if (code == SQLITE_DONE) {
    ++s.stats.stores;
    s.used[table].insert(key);
  } else {
    s.failed(code, "writing");
  }
}

void KernelCache::erase(const char* table, const std::string& key) {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  if (!s.ready()) return;
  const int code = Use(s.connection->erase).text(1, table).text(2, key).step();
  if (code != SQLITE_DONE) s.failed(code, "deleting");
}

void KernelCache::clear() {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  if (!s.ready()) return;
  s.touched.clear();
  const int code =
      sqlite3_exec(s.connection->db, "DELETE FROM entries; PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE);",
                   nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) s.failed(code, "clearing");
}

bool KernelCache::claim(const std::string& key) {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  if (!s.ready()) return true;
  if (!s.claims) s.claims = std::make_unique<os::ByteLocks>(s.file + ".building");
  return s.claims->take(position_of(key)) != os::ByteLocks::Taken::kNo;
}

void KernelCache::release(const std::string& key) {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  if (s.ready() && s.claims) s.claims->release(position_of(key));
}

CacheStats KernelCache::stats() {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  CacheStats stats = s.stats;
  stats.enabled = s.ready();
  stats.path = s.path;
  stats.problem = s.problem;
  if (stats.enabled) {
    stats.bytes = s.total_bytes();
    stats.entries = s.entry_count();
  }
  return stats;
}

std::vector<std::string> KernelCache::keys(const char* table) {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  std::vector<std::string> found;
  if (!s.ready()) return found;
  int code = SQLITE_OK;
  {
    Use use(s.connection->keys);
    use.text(1, table);
    while ((code = use.step()) == SQLITE_ROW)
      found.emplace_back(reinterpret_cast<const char*>(sqlite3_column_text(use.get(), 0)));
  }
  if (code != SQLITE_DONE) s.failed(code, "reading");
  return found;
}

std::vector<std::string> KernelCache::used(const char* table) {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  const std::set<std::string>& keys = s.used[table];
  return {keys.begin(), keys.end()};
}

std::vector<TableStats> KernelCache::tables() {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  std::vector<TableStats> found;
  if (!s.ready()) return found;
  int code = SQLITE_OK;
  {
    Use use(s.connection->tables);
    while ((code = use.step()) == SQLITE_ROW)
      found.push_back({reinterpret_cast<const char*>(sqlite3_column_text(use.get(), 0)), sqlite3_column_int64(use.get(), 1),
                       sqlite3_column_int64(use.get(), 2)});
  }
  if (code != SQLITE_DONE) s.failed(code, "reading");
  return found;
}

CleanupResult KernelCache::verify() {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  if (!s.ready()) return {0, 0, s.problem};
  std::vector<int64_t> bad;
  int code = SQLITE_OK;
  {
    Use use(s.connection->all);
    while ((code = use.step()) == SQLITE_ROW) {
      const std::string key = reinterpret_cast<const char*>(sqlite3_column_text(use.get(), 1));
      const void* data = sqlite3_column_blob(use.get(), 2);
      const auto bytes = static_cast<size_t>(sqlite3_column_bytes(use.get(), 2));
      if (sqlite3_column_int64(use.get(), 3) != checksum(key, data, bytes)) bad.push_back(sqlite3_column_int64(use.get(), 0));
    }
  }
  int64_t deleted = 0;
  if (code == SQLITE_DONE) code = s.delete_rows(bad, deleted);
  s.stats.rejected += deleted;
  return s.cleaned(code, deleted, "verifying");
}

CleanupResult KernelCache::prune(int64_t most_bytes, int64_t unused_ms) {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  if (!s.ready()) return {0, 0, s.problem};
  int64_t deleted = 0;
  const int code = s.delete_oldest(most_bytes < 0 ? std::numeric_limits<int64_t>::max() : most_bytes,
                                   unused_ms < 0 ? 0 : now_ms() - unused_ms, deleted);
  return s.cleaned(code, deleted, "pruning");
}

void KernelCache::checkpoint() {
  std::lock_guard lock(state_->mutex);
  if (!state_->connection || state_->connection->process != os::process_id()) return;
  state_->write_touched();
  sqlite3_busy_timeout(state_->connection->db, 0);
  // If another process writes at this moment, SQLite moves what it can. That process checkpoints when it ends.
  sqlite3_wal_checkpoint_v2(state_->connection->db, nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
  sqlite3_busy_timeout(state_->connection->db, kBusyMs);
}

}  // namespace ocl::cache
