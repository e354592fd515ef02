// csrc/cache/connection.h: one connection to the cache's SQLite file, with its prepared statements.
//
//   entries(tab, key, value, checksum, bytes, used)   used: unix milliseconds, refreshed at most once an hour per entry
//   user_version: kSchema; a file of another schema is begun anew
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <string>

namespace ocl::cache {

constexpr int kBusyMs = 1000;  // how long a busy file is waited for

int64_t now_ms();

/// Includes the key, so that a value under a wrong key is found as well.
int64_t checksum(const std::string& key, const void* value, size_t bytes);

bool is_corruption(int code);
bool is_busy(int code);

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
  Statement find, table, keys, tables, store, erase, touch, total, count, oldest, all, erase_row;

  ~Connection();
};

/// The first column of the first row; `code` is SQLITE_OK, or why there is none.
int64_t scalar(sqlite3* db, const char* sql, int& code);

/// Opens the file, makes the tables if needed, prepares the statements. SQLITE_OK, or the code of what failed and `message`.
int open_file(const std::string& path, Connection& connection, std::string& message);

}  // namespace ocl::cache
