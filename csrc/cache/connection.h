// csrc/cache/connection.h: one connection to the cache's SQLite file, with its prepared statements.
//
//   entries(tab, key, value, checksum, bytes, used)   used: unix time in ms, refreshed at most once an hour per entry
//   user_version: kSchema. The table of a file with another version is dropped and made anew
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <string>

namespace ocl::cache {

constexpr int kBusyMs = 1000;  // How long to wait for a file that another process has locked, in ms.

int64_t now_ms();

/// Returns a checksum of key and value, so that a value under a wrong key is detected too.
int64_t checksum(const std::string& key, const void* value, size_t bytes);

bool is_corruption(int code);
bool is_busy(int code);

struct Statement {
  sqlite3_stmt* raw = nullptr;
  ~Statement() { sqlite3_finalize(raw); }
};

/// Resets a statement when it goes out of scope.
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
  int process = 0;  // Id of the process that opened the connection.
  Statement find, table, keys, tables, store, erase, touch, total, count, oldest, all, erase_row;

  ~Connection();
};

/// Returns the first column of the first row. `code` becomes SQLITE_OK, or the reason why there is no row.
int64_t scalar(sqlite3* db, const char* sql, int& code);

/// Opens the file, makes the table if needed and prepares the statements. Returns SQLITE_OK, or the failed call's code
/// and puts its text into `message`.
int open_file(const std::string& path, Connection& connection, std::string& message);

}  // namespace ocl::cache
