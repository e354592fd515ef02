// tests/cpp/test_package.cpp: reading damaged packages ends in an error, never in a crash. OCL_FUZZ_FILES sets how many files
// are damaged at random; `make sanitize` runs this with AddressSanitizer.
#include <doctest/doctest.h>
#include <sqlite3.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "csrc/cache/package_file.h"
#include "csrc/ir/builder.h"
#include "csrc/package/contents.h"
#include "csrc/support/error.h"
#include "csrc/support/path.h"
#include "tests/cpp/temporary_folder.h"

using namespace ocl;

namespace {

/// A graph with a product, a sum, a gather and a size symbol.
std::string graph_text() {
  ir::Builder b;
  const ir::IndexExpr rows = b.size_symbol({1, 64});
  const ir::Value x = b.input(ir::DType::kF32, {rows, 8}, {8, 1}, false, false);
  const ir::Value w = b.input(ir::DType::kF32, {8, 4}, {4, 1}, true, false);
  const ir::Value state = b.input(ir::DType::kF32, {4}, {1}, false, false);
  const ir::Value y = b.contract(b.unsqueeze(x, 0), b.unsqueeze(w, 0), ir::DType::kF32);
  const ir::Value shifted = b.op("add", {b.select(y, 0, 0), state});
  b.output(shifted, ir::contiguous_strides(shifted.sizes));
  b.output(b.reduce("sum", shifted, {0}, false)[0], {1});
  return b.finish().str();
}

void run(sqlite3* db, const std::string& sql) {
  char* message = nullptr;
  const int code = sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &message);
  INFO(sql << ": " << (message ? message : ""));
  REQUIRE(code == SQLITE_OK);
}

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "''" : std::string(1, c);
  return result + "'";
}

std::string hex(const std::string& bytes) {
  std::string result = "x'";
  for (const char c : bytes)
    for (const int digit : {(c >> 4) & 15, c & 15}) result += "0123456789abcdef"[digit];
  return result + "'";
}

std::string checksum(const std::string& bytes) { return std::to_string(cache::package_checksum(bytes.data(), bytes.size())); }

void write_package(const std::string& path, const std::string& graph) {
  sqlite3* db = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &db) == SQLITE_OK);
  const std::string data(8 * 4 * 4 + 4 * 4, '\1');
  run(db, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;");
  run(db, "PRAGMA application_id=" + std::to_string(cache::kPackageId) +
              "; PRAGMA user_version=" + std::to_string(cache::kPackageVersion) +
              ";"
              "CREATE TABLE meta(key TEXT, value TEXT); CREATE TABLE storages(id INTEGER PRIMARY KEY, bytes INTEGER);"
              "CREATE TABLE parts(storage INTEGER, part INTEGER, data BLOB, checksum INTEGER);"
              "CREATE TABLE tensors(id, name, storage, first, dtype, sizes, strides, written);"
              "CREATE TABLE methods(id, name, structure, graph, checksum);"
              "CREATE TABLE arguments(method, position, name, kind, dtype, sizes);"
              "CREATE TABLE symbols(method, position, argument, dim);"
              "CREATE TABLE conditions(method, position, expression, message);"
              "CREATE TABLE inputs(method, position, kind, number);"
              "CREATE TABLE results(method, position, name, kind, value); CREATE TABLE kernels(key, binary, checksum);"
              "INSERT INTO meta VALUES('producer', 'a test'); INSERT INTO storages VALUES(0, 144);"
              "INSERT INTO tensors VALUES(0, 'w', 0, 0, 'f32', '8, 4', '4, 1', 0), (1, 's', 0, 32, 'f32', '4', '1', 1);"
              "INSERT INTO arguments VALUES(0, 0, 'x', 'tensor', 'f32', 's0, 8');"
              "INSERT INTO symbols VALUES(0, 0, 0, 0); INSERT INTO conditions VALUES(0, 0, 's0 - 1', 'at least 1');"
              "INSERT INTO inputs VALUES(0, 0, 'argument', 0), (0, 1, 'tensor', 0), (0, 2, 'tensor', 1);"
              "INSERT INTO results VALUES(0, 0, 'y', 'output', '0'), (0, 1, 'sum', 'output', '1'),"
              "(0, 2, 'n', 'integer', 's0*2'), (0, 3, 'x', 'argument', '0');");
  run(db, "INSERT INTO parts VALUES(0, 0, " + hex(data) + ", " + checksum(data) + ")");
  run(db, "INSERT INTO methods VALUES(0, 'forward', 'tuple', " + quoted(graph) + ", " + checksum(graph) + ")");
  sqlite3_close(db);
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path_of(path), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Reads everything. Returns the message of the error, or "".
std::string read(const std::string& path) {
  try {
    cache::PackageFile file(path);
    const package::Contents contents = package::read_contents(file);
    for (const package::Tensor& tensor : contents.tensors)
      file.read_storage(tensor.storage, [](int64_t, const void*, size_t) {});
    file.kernels("");
    return "";
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kConfig);
    return error.what();
  }
}

int files() {
  const char* given = std::getenv("OCL_FUZZ_FILES");
  return given ? std::atoi(given) : 300;
}

/// Changes some bytes of a text, mostly to characters of its language.
std::string changed(std::string text, std::mt19937& random) {
  static const std::string letters = "0123456789sirv+*/%-,()[]:=\n f64bu";
  for (unsigned count = 1 + random() % 4; count > 0 && !text.empty(); --count) {
    const size_t at = random() % text.size();
    switch (random() % 4) {
      case 0:
        text[at] = letters[random() % letters.size()];
        break;
      case 1:
        text.erase(at, 1 + random() % 20);
        break;
      case 2:
        text.insert(at, text.substr(random() % text.size(), random() % 40));
        break;
      default:
        text.insert(at,
                    std::to_string(random() % 2 ? static_cast<int64_t>(random()) << 31 : static_cast<int64_t>(random() % 9)));
    }
  }
  return text;
}

struct Fixture {
  std::string folder = new_folder("ocl_package");
  std::string graph = graph_text();
  std::string path = folder + "/good.ocl";

  Fixture() { write_package(path, graph); }
  ~Fixture() { std::filesystem::remove_all(path_of(folder)); }
};

}  // namespace

TEST_CASE_FIXTURE(Fixture, "a whole package is read") {
  CHECK(read(path) == "");
  cache::PackageFile file(path);
  const package::Contents contents = package::read_contents(file);
  REQUIRE(contents.methods.size() == 1);
  CHECK(contents.methods[0].results.size() == 4);
  CHECK(contents.tensors[1].written);
}

TEST_CASE_FIXTURE(Fixture, "a file with wrong bytes is an error or the same package") {
  const std::string good = bytes_of(path), bad = folder + "/bad.ocl";
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < files(); ++i) {
    std::string bytes = good;
    if (random() % 4 == 0)
      bytes.resize(random() % bytes.size());
    else if (random() % 4 == 0)
      bytes.replace(random() % bytes.size(), 0, bytes, random() % bytes.size(), random() % 5000);
    else
      for (unsigned count = 1 + random() % 8; count > 0; --count)
        bytes[random() % bytes.size()] = static_cast<char>(random() % 3 ? random() : 0xff);
    std::ofstream(path_of(bad), std::ios::binary | std::ios::trunc) << bytes;
    refused += !read(bad).empty();
  }
  CHECK(refused > files() / 4);
}

TEST_CASE_FIXTURE(Fixture, "a graph that was changed, with its checksum, is an error or another graph") {
  const std::string bad = folder + "/bad.ocl";
  std::mt19937 random(2);
  int refused = 0;
  for (int i = 0; i < files(); ++i) {
    std::filesystem::remove(path_of(bad));
    write_package(bad, changed(graph, random));
    refused += !read(bad).empty();
  }
  CHECK(refused > files() / 4);
}

TEST_CASE_FIXTURE(Fixture, "a row that was changed is an error or another package") {
  const std::string bad = folder + "/bad.ocl";
  const std::vector<std::pair<std::string, std::vector<std::string>>> columns = {
      {"storages", {"bytes"}},
      {"tensors", {"id", "storage", "first", "dtype", "sizes", "strides", "written"}},
      {"arguments", {"method", "position", "kind", "dtype", "sizes"}},
      {"symbols", {"argument", "dim"}},
      {"conditions", {"expression", "message"}},
      {"inputs", {"kind", "number"}},
      {"results", {"kind", "value"}},
      {"methods", {"name", "structure"}}};
  const std::vector<std::string> values = {"-1",
                                           "9223372036854775807",
                                           "99999999999",
                                           "NULL",
                                           "x'00ff'",
                                           "1.5",
                                           "'s0'",
                                           "'s7 // 0'",
                                           "'tensor'",
                                           "'f64, 3'",
                                           "'((((((((('",
                                           "'i0 + r0'",
                                           "'9223372036854775807*s0'",
                                           "zeroblob(100000)",
                                           "'s0 % 0'",
                                           "'min(s0'",
                                           "2",
                                           "0"};
  std::mt19937 random(3);
  for (int i = 0; i < files(); ++i) {
    std::filesystem::remove(path_of(bad));
    std::filesystem::copy_file(path_of(path), path_of(bad));
    sqlite3* db = nullptr;
    REQUIRE(sqlite3_open(bad.c_str(), &db) == SQLITE_OK);
    run(db, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;");
    for (unsigned count = 1 + random() % 3; count > 0; --count) {
      const auto& [table, names] = columns[random() % columns.size()];
      const std::string sql = "UPDATE OR IGNORE " + table + " SET " + names[random() % names.size()] + " = " +
                              values[random() % values.size()] + (random() % 2 ? " WHERE rowid = 1" : "");
      sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr);
    }
    sqlite3_close(db);
    read(bad);
  }
}
