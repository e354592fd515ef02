// csrc/cache/connection.cpp: opens the SQLite file, makes its table and prepares the statements.
#include "csrc/cache/connection.h"

#include <chrono>
#include <utility>

#include "csrc/support/hash.h"
#include "csrc/support/os.h"

namespace ocl::cache {
namespace {

constexpr int kSchema = 1;
#ifdef SQLITE_OPEN_NOFOLLOW
constexpr int kNoFollow = SQLITE_OPEN_NOFOLLOW;
#else
// SQLite before 3.31 cannot refuse symbolic links. The file has been checked, and nobody else can change its folder.
constexpr int kNoFollow = 0;
#endif

}  // namespace

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

int64_t checksum(const std::string& key, const void* value, size_t bytes) {
  const Hash128 name = hash128(key);
  return static_cast<int64_t>(hash128({static_cast<const char*>(value), bytes}, name.low).low);
}

Connection::~Connection() {
  for (Statement* statement :
       {&find, &table, &keys, &tables, &store, &erase, &touch, &total, &count, &oldest, &all, &erase_row}) {
    sqlite3_finalize(statement->raw);
    statement->raw = nullptr;
  }
  sqlite3_close(db);
}

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

int open_file(const std::string& path, Connection& connection, std::string& message) {
  const auto failed = [&](int code) {
    message = connection.db ? sqlite3_errmsg(connection.db) : sqlite3_errstr(code);
    return code;
  };
  // SQLite would make a file that others can read. Its own -wal and -shm files take the mode of this one.
  message = os::make_private_file(path);
  if (!message.empty()) return SQLITE_CANTOPEN;
  int code = sqlite3_open_v2(path.c_str(), &connection.db, SQLITE_OPEN_READWRITE | kNoFollow | SQLITE_OPEN_NOMUTEX, nullptr);
  if (code != SQLITE_OK) return failed(code);
  connection.process = os::process_id();
  sqlite3_extended_result_codes(connection.db, 1);
  sqlite3_busy_timeout(connection.db, kBusyMs);
  const auto run = [&](const char* sql) { return code = sqlite3_exec(connection.db, sql, nullptr, nullptr, nullptr); };
  // A crash of the machine may lose the latest entries but not the file. That is enough for a cache.
  if (run("PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;") != SQLITE_OK)
    return failed(code);
  const int64_t version = scalar(connection.db, "PRAGMA user_version", code);
  if (code != SQLITE_OK) return failed(code);
  if (version != kSchema) {
    // Another process may be making the table at this moment.
    if (run("BEGIN IMMEDIATE") != SQLITE_OK) return failed(code);
    const std::string make =
        "DROP TABLE IF EXISTS entries;"
        "CREATE TABLE entries(id INTEGER PRIMARY KEY, tab TEXT NOT NULL, key TEXT NOT NULL, checksum INTEGER NOT NULL,"
        " bytes INTEGER NOT NULL, used INTEGER NOT NULL, value BLOB NOT NULL, UNIQUE(tab, key));"
        // This index lets evictions order and sum up entries without reading values.
        "CREATE INDEX entries_used ON entries(used, bytes);"
        "PRAGMA user_version=" +
        std::to_string(kSchema) + ";";
    if (scalar(connection.db, "PRAGMA user_version", code) != kSchema && run(make.c_str()) != SQLITE_OK) return failed(code);
    if (run("COMMIT") != SQLITE_OK) return failed(code);
  }
  const std::pair<Statement*, const char*> statements[] = {
      {&connection.find, "SELECT id, value, checksum, used FROM entries WHERE tab=?1 AND key=?2"},
      {&connection.table, "SELECT key, value, checksum FROM entries WHERE tab=?1 ORDER BY id"},
      {&connection.keys, "SELECT key FROM entries WHERE tab=?1 ORDER BY id"},
      {&connection.tables, "SELECT tab, count(*), sum(bytes) FROM entries GROUP BY tab ORDER BY tab"},
      {&connection.store,
       "INSERT INTO entries(tab, key, value, checksum, bytes, used) VALUES(?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT(tab, key) DO "
       "UPDATE SET"
       " value=excluded.value, checksum=excluded.checksum, bytes=excluded.bytes, used=excluded.used"},
      {&connection.erase, "DELETE FROM entries WHERE tab=?1 AND key=?2"},
      {&connection.touch, "UPDATE entries SET used=?2 WHERE id=?1"},
      {&connection.total, "SELECT coalesce(sum(bytes), 0) FROM entries INDEXED BY entries_used"},
      {&connection.count, "SELECT count(*) FROM entries INDEXED BY entries_used"},
      {&connection.oldest, "SELECT id, bytes, used FROM entries INDEXED BY entries_used ORDER BY used"},
      {&connection.all, "SELECT id, key, value, checksum FROM entries ORDER BY id"},
      {&connection.erase_row, "DELETE FROM entries WHERE id=?1"},
  };
  for (const auto& [statement, sql] : statements)
    if (code = sqlite3_prepare_v3(connection.db, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement->raw, nullptr);
        code != SQLITE_OK)
      return failed(code);
  return SQLITE_OK;
}

}  // namespace ocl::cache
