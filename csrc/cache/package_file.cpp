// csrc/cache/package_file.cpp: see package_file.h. Each query checks the types of its columns, because anybody can write a
// file.
#include "csrc/cache/package_file.h"

#include <sqlite3.h>

#include <utility>

#include "csrc/cache/connection.h"
#include "csrc/support/error.h"
#include "csrc/support/hash.h"
#include "csrc/support/path.h"

namespace ocl::cache {
namespace {

// Largest number of rows of a table, of bytes of a text, and of steps of one query. They keep a file that was made to do harm
// from taking all memory or time.
constexpr int64_t kMostRows = 1'000'000;
constexpr int kMostSteps = 100'000'000;

constexpr const char* kTables[] = {"meta",    "storages",   "parts",  "tensors", "methods", "arguments",
                                   "symbols", "conditions", "inputs", "results", "kernels"};

[[noreturn]] void damaged(const std::string& path, const std::string& what) {
  fail(ErrorKind::kConfig, "the package " + path + " is damaged: " + what + "\n  do: copy it again, or save it again");
}

/// One query, with the file's path for messages.
class Query {
 public:
  Query(sqlite3* db, const std::string& path, const char* sql) : db_(db), path_(path) {
    check(sqlite3_prepare_v2(db, sql, -1, &statement_.raw, nullptr));
  }
  Query& with(int64_t value) {
    check(sqlite3_bind_int64(statement_.raw, ++bound_, value));
    return *this;
  }
  Query& with(const std::string& value) {
    check(sqlite3_bind_text(statement_.raw, ++bound_, value.data(), static_cast<int>(value.size()), SQLITE_TRANSIENT));
    return *this;
  }
  bool next() {
    column_ = 0;
    const int code = sqlite3_step(statement_.raw);
    if (code != SQLITE_ROW && code != SQLITE_DONE) check(code);
    if (code == SQLITE_ROW && ++rows_ > kMostRows) damaged(path_, "a table has too many rows");
    return code == SQLITE_ROW;
  }
  /// Return the next column of the row.
  int64_t number() {
    if (sqlite3_column_type(statement_.raw, column_) != SQLITE_INTEGER) damaged(path_, "a number is missing");
    return sqlite3_column_int64(statement_.raw, column_++);
  }
  std::string text() {
    const auto [data, bytes] = column(SQLITE_TEXT, "a text is missing");
    return {static_cast<const char*>(data), bytes};
  }
  std::pair<const void*, size_t> blob() { return column(SQLITE_BLOB, "data is missing"); }

 private:
  std::pair<const void*, size_t> column(int type, const char* problem) {
    if (sqlite3_column_type(statement_.raw, column_) != type) damaged(path_, problem);
    const void* data = sqlite3_column_blob(statement_.raw, column_);
    const int bytes = sqlite3_column_bytes(statement_.raw, column_);
    if (data == nullptr && bytes > 0) fail(ErrorKind::kConfig, "reading the package " + path_ + " took too much memory");
    ++column_;
    return {data, static_cast<size_t>(bytes)};
  }
  void check(int code) const {
    if (code != SQLITE_OK) damaged(path_, sqlite3_errmsg(db_));
  }

  sqlite3* db_;
  const std::string& path_;
  Statement statement_;
  int bound_ = 0, column_ = 0;
  int64_t rows_ = 0;
};

int count_step(void* steps) { return ++*static_cast<int*>(steps) > kMostSteps / 1000; }

}  // namespace

struct PackageFile::State {
  sqlite3* db = nullptr;
  int steps = 0;

  ~State() { sqlite3_close(db); }
};

int64_t package_checksum(const void* bytes, size_t size) {
  return static_cast<int64_t>(hash128({static_cast<const char*>(bytes), size}).low);
}

PackageFile::PackageFile(std::string path) : path_(std::move(path)), state_(std::make_unique<State>()) {
  // SQLite maps no pages: the process would end if the file became shorter meanwhile.
  const int code = sqlite3_open_v2(path_.c_str(), &state_->db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, nullptr);
  if (code != SQLITE_OK)
    fail(ErrorKind::kConfig, "the package " + path_ + " cannot be opened: " + sqlite3_errmsg(state_->db) +
                                 "\n  do: check the path, and that you may read the file");
  sqlite3_busy_timeout(state_->db, kBusyMs);
  sqlite3_db_config(state_->db, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(state_->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_progress_handler(state_->db, 1000, &count_step, &state_->steps);
  // One transaction for all reads, so that they see one state of the file.
  sqlite3_exec(state_->db, "PRAGMA cell_size_check=ON; BEGIN", nullptr, nullptr, nullptr);
  int found = SQLITE_OK;
  const int64_t id = scalar(state_->db, "PRAGMA application_id", found);
  // A file that is shorter than its first page says is SQLITE_CORRUPT.
  if (found == SQLITE_CORRUPT || found == SQLITE_IOERR) damaged(path_, "it is cut off, or its beginning was changed");
  if (found != SQLITE_OK || id != kPackageId)
    fail(ErrorKind::kConfig, path_ + " is no package\n  do: make one with torch_ocl_compile.package.save()");
  const int64_t version = scalar(state_->db, "PRAGMA user_version", found);
  if (found != SQLITE_OK || version != kPackageVersion)
    fail(ErrorKind::kConfig, "the package " + path_ + " has format " + std::to_string(version) +
                                 "; this library reads format " + std::to_string(kPackageVersion) +
                                 "\n  do: save the model again, or use the library of the " +
                                 "version that saved it: " + meta("producer"));
  for (const char* table : kTables) {
    Query query(state_->db, path_, "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?");
    if (!query.with(std::string(table)).next() || query.number() != 1) damaged(path_, std::string("it has no table ") + table);
  }
}

PackageFile::~PackageFile() = default;

std::vector<StoredTensor> PackageFile::tensors() {
  std::vector<StoredTensor> result;
  Query query(state_->db, path_, "SELECT id, name, storage, first, dtype, sizes, strides, written FROM tensors ORDER BY id");
  while (query.next()) {
    StoredTensor& t = result.emplace_back();
    t.id = query.number();
    t.name = query.text();
    t.storage = query.number();
    t.first = query.number();
    t.dtype = query.text();
    t.sizes = query.text();
    t.strides = query.text();
    t.written = query.number() != 0;
  }
  return result;
}

std::vector<StoredMethod> PackageFile::methods() {
  std::vector<StoredMethod> result;
  Query methods(state_->db, path_, "SELECT id, name, structure, graph, checksum FROM methods ORDER BY id");
  while (methods.next()) {
    StoredMethod& m = result.emplace_back();
    m.id = methods.number();
    m.name = methods.text();
    m.structure = methods.text();
    m.graph = methods.text();
    if (methods.number() != package_checksum(m.graph.data(), m.graph.size()))
      damaged(path_, "the graph of method " + m.name + " has another checksum");
  }
  for (StoredMethod& m : result) {
    // Calls `take` for each row of a table that belongs to the method. Positions count from 0.
    const auto rows = [&](const char* sql, const auto& take) {
      Query query(state_->db, path_, sql);
      query.with(m.id);
      for (int64_t position = 0; query.next(); ++position) {
        if (query.number() != position) damaged(path_, "a row of method " + m.name + " is missing");
        take(query);
      }
    };
    rows("SELECT position, name, kind, dtype, sizes FROM arguments WHERE method = ? ORDER BY position", [&](Query& q) {
      StoredArgument& a = m.arguments.emplace_back();
      a.name = q.text();
      a.kind = q.text();
      a.dtype = q.text();
      a.sizes = q.text();
    });
    rows("SELECT position, argument, dim FROM symbols WHERE method = ? ORDER BY position", [&](Query& q) {
      StoredSymbol& s = m.symbols.emplace_back();
      s.argument = q.number();
      s.dim = q.number();
    });
    rows("SELECT position, expression, message FROM conditions WHERE method = ? ORDER BY position", [&](Query& q) {
      StoredCondition& c = m.conditions.emplace_back();
      c.expression = q.text();
      c.message = q.text();
    });
    rows("SELECT position, kind, number FROM inputs WHERE method = ? ORDER BY position", [&](Query& q) {
      StoredInput& i = m.inputs.emplace_back();
      i.kind = q.text();
      i.number = q.number();
    });
    rows("SELECT position, name, kind, value FROM results WHERE method = ? ORDER BY position", [&](Query& q) {
      StoredResult& r = m.results.emplace_back();
      r.name = q.text();
      r.kind = q.text();
      r.value = q.text();
    });
  }
  return result;
}

int64_t PackageFile::storage_bytes(int64_t storage) {
  Query query(state_->db, path_, "SELECT bytes FROM storages WHERE id = ?");
  if (!query.with(storage).next()) damaged(path_, "the contents of a tensor are missing");
  const int64_t bytes = query.number();
  if (bytes < 0) damaged(path_, "a tensor has a negative size");
  return bytes;
}

void PackageFile::read_storage(int64_t storage, const std::function<void(int64_t, const void*, size_t)>& take) {
  const int64_t all = storage_bytes(storage);
  Query query(state_->db, path_, "SELECT part, data, checksum FROM parts WHERE storage = ? ORDER BY part");
  query.with(storage);
  int64_t first = 0;
  for (int64_t part = 0; query.next(); ++part) {
    if (query.number() != part) damaged(path_, "a part of a tensor is missing");
    const auto [data, bytes] = query.blob();
    if (query.number() != package_checksum(data, bytes)) damaged(path_, "a part of a tensor has another checksum");
    if (static_cast<int64_t>(bytes) > all - first) damaged(path_, "a tensor has too much data");
    take(first, data, bytes);
    first += static_cast<int64_t>(bytes);
  }
  if (first != all) damaged(path_, "a part of a tensor is missing");
}

std::map<std::string, std::string> PackageFile::kernels(const std::string& prefix) {
  std::map<std::string, std::string> found;
  Query query(state_->db, path_, "SELECT key, binary, checksum FROM kernels WHERE key >= ? AND key < ?");
  query.with(prefix).with(prefix + "~");  // Keys have no characters after "~".
  while (query.next()) {
    const std::string key = query.text();
    const auto [data, bytes] = query.blob();
    std::string binary(static_cast<const char*>(data), bytes);
    if (query.number() == package_checksum(binary.data(), binary.size())) found[key] = std::move(binary);
  }
  return found;
}

std::string PackageFile::meta(const std::string& key) {
  Query query(state_->db, path_, "SELECT value FROM meta WHERE key = ?");
  return query.with(key).next() ? query.text() : "";
}

}  // namespace ocl::cache
