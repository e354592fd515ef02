// tests/cpp/test_package.cpp: reading damaged packages ends in an error, never in a crash. OCL_FUZZ_FILES sets how many files
// are damaged at random in each way; `make sanitize` runs this with AddressSanitizer. The name of a file is the seed of its
// damage, and a crash leaves the file where it is.
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

/// Calls `damage` with a random generator and the path of a file for it to write, then reads the file. Returns how many files
/// were refused. The seeds are `first`, `first` + 1, ...
template <class Damage>
int refused_files(const std::string& folder, unsigned first, const Damage& damage) {
  int refused = 0;
  for (unsigned seed = first; seed < first + static_cast<unsigned>(files()); ++seed) {
    CAPTURE(seed);
    const std::string bad = folder + "/" + std::to_string(seed) + ".ocl";
    std::mt19937 random(seed);
    damage(random, bad);
    refused += !read(bad).empty();
    std::filesystem::remove(path_of(bad));
  }
  return refused;
}

/// Cuts bytes off, repeats some, swaps two sections, which may be pages of SQLite, or changes some bytes.
std::string damaged(std::string bytes, std::mt19937& random) {
  constexpr size_t kPage = 4096;
  switch (random() % 4) {
    case 0:
      bytes.resize(random() % bytes.size());
      break;
    case 1:
      bytes.insert(random() % bytes.size(), bytes.substr(random() % bytes.size(), random() % 5000));
      break;
    case 2: {
      const size_t length = random() % 2 ? kPage : 1 + random() % 512, step = length == kPage ? kPage : 1;
      const size_t places = (bytes.size() - length) / step + 1;
      const size_t a = random() % places * step, b = random() % places * step;
      const std::string first = bytes.substr(a, length), second = bytes.substr(b, length);
      bytes.replace(a, length, second);
      bytes.replace(b, length, first);
      break;
    }
    default:
      for (unsigned count = 1 + random() % 8; count > 0; --count)
        bytes[random() % bytes.size()] = static_cast<char>(random() % 3 ? random() : 0xff);
  }
  return bytes;
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
  const std::string good = bytes_of(path);
  const int refused = refused_files(folder, 1'000'000, [&](std::mt19937& random, const std::string& bad) {
    std::ofstream(path_of(bad), std::ios::binary | std::ios::trunc) << damaged(good, random);
  });
  CHECK(refused > files() / 4);
}

TEST_CASE_FIXTURE(Fixture, "a graph that was changed, with its checksum, is an error or another graph") {
  const int refused = refused_files(
      folder, 2'000'000, [&](std::mt19937& random, const std::string& bad) { write_package(bad, changed(graph, random)); });
  CHECK(refused > files() / 4);
}

TEST_CASE_FIXTURE(Fixture, "a row that was changed is an error or another package") {
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
  refused_files(folder, 3'000'000, [&](std::mt19937& random, const std::string& bad) {
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
  });
}
