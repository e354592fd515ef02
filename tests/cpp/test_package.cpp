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
#include "csrc/package/contents.h"
#include "csrc/support/error.h"
#include "csrc/support/path.h"
#include "tests/cpp/temporary_folder.h"
#include "tests/cpp/written_package.h"

using namespace ocl;

namespace {

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
