// csrc/cache/kernel_cache.cpp: the SQLite side. One connection per process, opened at the first use and again after a fork.
//
//   entries(tab, key, value, checksum, bytes, used)   used: unix milliseconds, refreshed at most once an hour per entry
//   user_version: kSchema; a file of another schema is begun anew
#include "csrc/cache/kernel_cache.h"

#include <sqlite3.h>

#include <chrono>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/support/hash.h"
#include "csrc/support/log.h"
#include "csrc/support/os.h"

namespace ocl::cache {
namespace {

constexpr int kSchema = 1;
constexpr int kBusyMs = 1000;                 // how long a busy file is waited for
constexpr int64_t kUsedStepMs = 3600 * 1000;  // between two refreshes of an entry's `used`: reading should not mean writing
constexpr int kStoresPerCheck = 16;           // the size is looked at after so many stores, and when a process opens the file
constexpr double kFullTo = 0.9;               // an eviction leaves this share of the budget
#ifdef SQLITE_OPEN_NOFOLLOW
constexpr int kNoFollow = SQLITE_OPEN_NOFOLLOW;
#else
constexpr int kNoFollow = 0;  // before SQLite 3.31; the file has been looked at, and nobody else can change its folder
#endif

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Includes the key, so that a value under a wrong key is found as well.
int64_t checksum(const std::string& key, const void* value, size_t bytes) {
  const Hash128 name = hash128(key);
  return static_cast<int64_t>(hash128({static_cast<const char*>(value), bytes}, name.low).low);
}

struct Statement {
  sqlite3_stmt* raw = nullptr;
  ~Statement() { sqlite3_finalize(raw); }
};

/// Resets a statement when its user is done, whatever happened.
class Use {
 public:
  explicit Use(Statement& statement) : raw_(statement.raw) {}
  ~Use() {
    sqlite3_reset(raw_);
    sqlite3_clear_bindings(raw_);
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  Use& text(int column, const std::string& value) {
    sqlite3_bind_text(raw_, column, value.data(), static_cast<int>(value.size()), SQLITE_TRANSIENT);
    return *this;
  }
  Use& blob(int column, const std::string& value) {
    sqlite3_bind_blob64(raw_, column, value.data(), value.size(), SQLITE_STATIC);
    return *this;
  }
  Use& number(int column, int64_t value) {
    sqlite3_bind_int64(raw_, column, value);
    return *this;
  }
  int step() { return sqlite3_step(raw_); }
  sqlite3_stmt* get() const { return raw_; }

 private:
  sqlite3_stmt* raw_;
};

struct Connection {
  sqlite3* db = nullptr;
  int process = 0;  // the process that opened it
  Statement find, table, store, erase, touch, total, count, oldest, erase_row;

  ~Connection() {
    for (Statement* statement : {&find, &table, &store, &erase, &touch, &total, &count, &oldest, &erase_row}) {
      sqlite3_finalize(statement->raw);
      statement->raw = nullptr;
    }
    sqlite3_close(db);
  }
};

bool is_corruption(int code) {
  const int primary = code & 0xff;
  return primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB;
}

bool is_busy(int code) {
  const int primary = code & 0xff;
  return primary == SQLITE_BUSY || primary == SQLITE_LOCKED;
}

int64_t scalar(sqlite3* db, const char* sql, int& code) {
  Statement statement;
  code = sqlite3_prepare_v2(db, sql, -1, &statement.raw, nullptr);
  if (code != SQLITE_OK) return 0;
  code = sqlite3_step(statement.raw);
  if (code != SQLITE_ROW) return 0;
  const int64_t value = sqlite3_column_int64(statement.raw, 0);
  code = SQLITE_OK;
  return value;
}

/// Opens the file, makes the tables if needed, prepares the statements. SQLITE_OK, or the code of what failed and `message`.
int open_file(const std::string& path, Connection& connection, std::string& message) {
  const auto failed = [&](int code) {
    message = connection.db ? sqlite3_errmsg(connection.db) : sqlite3_errstr(code);
    return code;
  };
  message = os::make_private_file(path);  // SQLite would let others read it; what it adds (-wal, -shm) has the same mode
  if (!message.empty()) return SQLITE_CANTOPEN;
  int code = sqlite3_open_v2(path.c_str(), &connection.db, SQLITE_OPEN_READWRITE | kNoFollow | SQLITE_OPEN_NOMUTEX, nullptr);
  if (code != SQLITE_OK) return failed(code);
  connection.process = os::process_id();
  sqlite3_extended_result_codes(connection.db, 1);
  sqlite3_busy_timeout(connection.db, kBusyMs);
  const auto run = [&](const char* sql) { return code = sqlite3_exec(connection.db, sql, nullptr, nullptr, nullptr); };
  // A crash of the machine may lose the last entries but not the file: what more would a cache need?
  if (run("PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;") != SQLITE_OK)
    return failed(code);
  const int64_t version = scalar(connection.db, "PRAGMA user_version", code);
  if (code != SQLITE_OK) return failed(code);
  if (version != kSchema) {
    if (run("BEGIN IMMEDIATE") != SQLITE_OK) return failed(code);  // another process may be making them at this moment
    const std::string make =
        "DROP TABLE IF EXISTS entries;"
        "CREATE TABLE entries(id INTEGER PRIMARY KEY, tab TEXT NOT NULL, key TEXT NOT NULL, checksum INTEGER NOT NULL,"
        " bytes INTEGER NOT NULL, used INTEGER NOT NULL, value BLOB NOT NULL, UNIQUE(tab, key));"
        "CREATE INDEX entries_used ON entries(used, bytes);"  // order of eviction and total size, without reading a value
        "PRAGMA user_version=" +
        std::to_string(kSchema) + ";";
    if (scalar(connection.db, "PRAGMA user_version", code) != kSchema && run(make.c_str()) != SQLITE_OK) return failed(code);
    if (run("COMMIT") != SQLITE_OK) return failed(code);
  }
  const std::pair<Statement*, const char*> statements[] = {
      {&connection.find, "SELECT id, value, checksum, used FROM entries WHERE tab=?1 AND key=?2"},
      {&connection.table, "SELECT key, value, checksum FROM entries WHERE tab=?1 ORDER BY id"},
      {&connection.store,
       "INSERT INTO entries(tab, key, value, checksum, bytes, used) VALUES(?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT(tab, key) DO "
       "UPDATE SET"
       " value=excluded.value, checksum=excluded.checksum, bytes=excluded.bytes, used=excluded.used"},
      {&connection.erase, "DELETE FROM entries WHERE tab=?1 AND key=?2"},
      {&connection.touch, "UPDATE entries SET used=?2 WHERE id=?1"},
      {&connection.total, "SELECT coalesce(sum(bytes), 0) FROM entries INDEXED BY entries_used"},
      {&connection.count, "SELECT count(*) FROM entries INDEXED BY entries_used"},
      {&connection.oldest, "SELECT id, bytes FROM entries INDEXED BY entries_used ORDER BY used"},
      {&connection.erase_row, "DELETE FROM entries WHERE id=?1"},
  };
  for (const auto& [statement, sql] : statements)
    if (code = sqlite3_prepare_v3(connection.db, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement->raw, nullptr);
        code != SQLITE_OK)
      return failed(code);
  return SQLITE_OK;
}

}  // namespace

struct KernelCache::State {
  State(std::string path_, int64_t budget_) : path(std::move(path_)), budget(budget_) {}

  ~State() {
    std::lock_guard lock(mutex);
    if (!connection) return;
    if (connection->process == os::process_id())
      write_touched();
    else
      (void)connection.release();  // the parent's: closing it here would drop the parent's locks
  }

  /// True when there is a usable connection. Opens one at first use and in a forked child.
  bool ready() {
    if (disabled || path.empty()) return false;
    if (connection && connection->process == os::process_id()) return true;
    if (connection) (void)connection.release();
    touched.clear();
    return open();
  }

  bool open() {
    const std::filesystem::path given(path);
    const os::PrivateFolder folder = os::private_folder(given.has_parent_path() ? given.parent_path().string() : ".");
    std::string message = folder.problem;
    file = folder.path + "/" + given.filename().string();
    for (const char* suffix : {"", "-wal", "-shm", "-journal"})
      if (message.empty()) message = os::private_file_problem(file + suffix);
    if (!message.empty()) {
      disable("is not used: " + message);
      return false;
    }
    auto opened = std::make_unique<Connection>();
    const int64_t begin = now_ms();
    int code = open_file(file, *opened, message);
    // Two processes that turn a new file into WAL at once: SQLite tells one of them "busy" without waiting.
    while (is_busy(code) && now_ms() - begin < kBusyMs) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      opened = std::make_unique<Connection>();
      code = open_file(file, *opened, message);
    }
    if (is_corruption(code)) {
      opened.reset();
      return begin_anew(message);
    }
    if (code != SQLITE_OK) {
      disable("does not open: " + message);
      return false;
    }
    connection = std::move(opened);
    stores_since_check = kStoresPerCheck;  // another process may have left it too large
    return true;
  }

  /// Moves a corrupt file aside. Others may be doing the same, so only one at a time looks, and looks again.
  bool begin_anew(const std::string& reason) {
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
      opened = std::make_unique<Connection>();  // closes the bad one
      std::error_code error;
      std::filesystem::rename(file, file + ".corrupt", error);
      if (error) {
        disable("is corrupt and cannot be moved aside: " + error.message());
        return false;
      }
      for (const char* suffix : {"-wal", "-shm"}) std::filesystem::remove(file + suffix, error);
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

  /// After a statement failed: begins anew, or disables. Never throws.
  void failed(int code, const char* doing) {
    const std::string message = connection ? sqlite3_errmsg(connection->db) : sqlite3_errstr(code);
    if (is_corruption(code))
      begin_anew(message);
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
    touched.clear();  // a busy file: an age that is an hour wrong does no harm
  }

  int64_t total_bytes() {
    Use use(connection->total);
    return use.step() == SQLITE_ROW ? sqlite3_column_int64(use.get(), 0) : 0;
  }

  /// Deletes the least recently used entries until the rest, with `coming` bytes, fits.
  int make_room(int64_t coming) {
    int64_t total = total_bytes() + coming;
    if (total <= budget) return SQLITE_OK;
    write_touched();
    int code = sqlite3_exec(connection->db, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr);
    if (code != SQLITE_OK) return code;
    std::vector<int64_t> victims;
    {
      Use use(connection->oldest);
      const auto target = static_cast<int64_t>(kFullTo * static_cast<double>(budget));
      while (total > target && use.step() == SQLITE_ROW) {
        victims.push_back(sqlite3_column_int64(use.get(), 0));
        total -= sqlite3_column_int64(use.get(), 1);
      }
    }
    for (int64_t id : victims)
      if (Use(connection->erase_row).number(1, id).step() == SQLITE_DONE) ++stats.evictions;
    code = sqlite3_exec(connection->db, "COMMIT", nullptr, nullptr, nullptr);
    if (code == SQLITE_OK) sqlite3_exec(connection->db, "PRAGMA incremental_vacuum", nullptr, nullptr, nullptr);
    return code;
  }

  const std::string path;  // as it was given
  const int64_t budget;
  std::mutex mutex;
  std::string file;  // `path` without symbolic links, once it has been looked at
  std::unique_ptr<Connection> connection;
  bool disabled = false, begun_anew = false;
  std::string problem;
  std::set<int64_t> touched;  // rows whose `used` is to be refreshed
  int stores_since_check = 0;
  CacheStats stats;
};

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
  if (code == SQLITE_DONE)
    ++s.stats.stores;
  else
    s.failed(code, "writing");
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

CacheStats KernelCache::stats() {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  CacheStats stats = s.stats;
  stats.enabled = s.ready();
  stats.path = s.path;
  stats.problem = s.problem;
  if (stats.enabled) {
    stats.bytes = s.total_bytes();
    Use use(s.connection->count);
    if (use.step() == SQLITE_ROW) stats.entries = sqlite3_column_int64(use.get(), 0);
  }
  return stats;
}

}  // namespace ocl::cache
