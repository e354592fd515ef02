// tests/cpp/test_cache.cpp: the kernel cache in normal use, with broken files, with a full budget, and beside other
// processes.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <sqlite3.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/cache/kernel_cache.h"
#include "csrc/support/log.h"
#include "tests/cpp/cache_folder.h"
#include "tests/cpp/other_process.h"

using ocl::cache::CacheStats;
using ocl::cache::KernelCache;
using namespace cache_test;

TEST_CASE("what is stored is found, by this object and by the next one") {
  Folder folder;
  const std::string binary = bytes(100000, 3) + std::string("\0\0end", 5);
  {
    KernelCache cache(folder.file(), kBudget);
    CHECK(cache.find("kernels", "k") == "");
    cache.store("kernels", "k", binary);
    cache.store("plans", "k", "a plan under the same key");
    CHECK(cache.find("kernels", "k") == binary);
    cache.store("kernels", "k", "replaced");
    CHECK(cache.find("kernels", "k") == "replaced");
    cache.store("kernels", "k", binary);
  }
  KernelCache cache(folder.file(), kBudget);
  CHECK(cache.find("kernels", "k") == binary);
  CHECK(cache.find("plans", "k") == "a plan under the same key");
  CHECK(cache.find("tuning", "k") == "");
  const CacheStats stats = cache.stats();
  CHECK(stats.enabled);
  CHECK(stats.entries == 2);
  CHECK(stats.hits == 2);
  CHECK(stats.misses == 1);
  CHECK(stats.bytes > static_cast<int64_t>(binary.size()));
  cache.erase("plans", "k");
  CHECK(cache.find("plans", "k") == "");
  cache.clear();
  CHECK(cache.find("kernels", "k") == "");
  CHECK(cache.stats().entries == 0);
  CHECK(folder.warnings.empty());
}

TEST_CASE("folders of the path are made") {
  Folder folder;
  KernelCache cache(folder.path + "/a/b/kernels.db", kBudget);
  cache.store("kernels", "k", "v");
  CHECK(cache.find("kernels", "k") == "v");
}

TEST_CASE("an empty path keeps nothing and warns of nothing") {
  Folder folder;
  KernelCache cache("", kBudget);
  cache.store("kernels", "k", "v");
  CHECK(cache.find("kernels", "k") == "");
  CHECK(!cache.stats().enabled);
  CHECK(folder.warnings.empty());
}

TEST_CASE("a changed value or key is noticed, counted and deleted") {
  Folder folder;
  KernelCache cache(folder.file(), kBudget);
  cache.store("kernels", "flipped", bytes(1000, 1));
  cache.store("kernels", "one", "value of one");
  cache.store("kernels", "two", "value of two");
  std::string other = bytes(1000, 1);
  other[999] = static_cast<char>(other[999] ^ 1);
  cache.store("kernels", "source", other);
  sql(folder.file(), "UPDATE entries SET value=(SELECT value FROM entries WHERE key='source') WHERE key='flipped'");
  sql(folder.file(),
      // The value is right, but it is stored under the wrong key.
      "DELETE FROM entries WHERE key='two'; UPDATE entries SET key='two' WHERE key='one'");
  CHECK(cache.find("kernels", "flipped") == "");
  CHECK(cache.find("kernels", "two") == "");
  CHECK(cache.stats().rejected == 2);
  CHECK(cache.stats().entries == 1);
  cache.store("kernels", "flipped", bytes(1000, 1));
  CHECK(cache.find("kernels", "flipped") == bytes(1000, 1));
}

TEST_CASE("a table is listed in the order of its first stores, without what has a wrong checksum") {
  Folder folder;
  {
    KernelCache cache(folder.file(), kBudget);
    for (const char* key : {"b", "a", "c"}) cache.store("tuning", key, std::string("value of ") + key);
    cache.store("kernels", "k", "another table");
  }
  sql(folder.file(), "UPDATE entries SET value='other' WHERE key='a'");
  KernelCache cache(folder.file(), kBudget);
  using Rows = std::vector<std::pair<std::string, std::string>>;
  CHECK(cache.entries("tuning") == Rows{{"b", "value of b"}, {"c", "value of c"}});
  CHECK(cache.stats().rejected == 1);
  CHECK(cache.entries("nonesuch").empty());
  CHECK(KernelCache("", kBudget).entries("tuning").empty());
}

TEST_CASE("the budget holds, and the least recently used go first") {
  Folder folder;
  const int64_t budget = 1 << 20;
  KernelCache cache(folder.file(), budget);
  cache.store("kernels", "old but used", bytes(1000, 9));
  for (int i = 0; i < 5; ++i) cache.store("kernels", "first" + std::to_string(i), bytes(100000, static_cast<char>(i)));
  sql(folder.file(), "UPDATE entries SET used = used - 2*3600*1000");  // Makes all entries two hours older.
  CHECK(cache.find("kernels", "old but used") != "");
  for (int i = 0; i < 30; ++i) {
    cache.store("kernels", "second" + std::to_string(i), bytes(100000, static_cast<char>(i)));
    CHECK(cache.stats().bytes <= budget);
    // The first eviction has deleted entries that were not used for two hours.
    if (i == 7) {
      CHECK(cache.find("kernels", "old but used") != "");
      CHECK(cache.find("kernels", "first0") == "");
      CHECK(cache.find("kernels", "second0") != "");
    }
  }
  CHECK(cache.find("kernels", "second29") == bytes(100000, 29));
  CHECK(cache.stats().evictions > 0);
  CHECK(fs::file_size(folder.file()) < 2 * budget);  // Evictions shrink the file, too.
  cache.store("kernels", "too large", bytes(2 << 20, 1));
  CHECK(cache.find("kernels", "too large") == "");
  CHECK(cache.find("kernels", "second29") != "");  // Nothing was evicted for this entry.
}

TEST_CASE("keys and tables are listed, and damaged entries are found and deleted") {
  Folder folder;
  {
    KernelCache cache(folder.file(), kBudget);
    for (const char* key : {"b", "a", "c"}) cache.store("kernels", key, bytes(100, 1));
    cache.store("tuning", "t", "x");
    CHECK(cache.verify().deleted == 0);
    CHECK(cache.verify().kept == 4);
  }
  sql(folder.file(), "UPDATE entries SET value='other' WHERE key='a'");
  KernelCache cache(folder.file(), kBudget);
  CHECK(cache.keys("kernels") == std::vector<std::string>{"b", "a", "c"});
  const ocl::cache::CleanupResult cleaned = cache.verify();
  CHECK(cleaned.deleted == 1);
  CHECK(cleaned.kept == 3);
  CHECK(cleaned.problem == "");
  CHECK(cache.keys("kernels") == std::vector<std::string>{"b", "c"});
  const std::vector<ocl::cache::TableStats> tables = cache.tables();
  REQUIRE(tables.size() == 2);
  CHECK(tables[0].table == "kernels");
  CHECK(tables[0].entries == 2);
  CHECK(tables[0].bytes == 2 * (100 + 1));
  CHECK(tables[1].table == "tuning");
  CHECK(KernelCache("", kBudget).keys("kernels").empty());
  CHECK(KernelCache("", kBudget).tables().empty());
}

TEST_CASE("pruning deletes what is old, then what exceeds a size") {
  Folder folder;
  KernelCache cache(folder.file(), kBudget);
  for (int i = 0; i < 10; ++i) cache.store("kernels", "k" + std::to_string(i), bytes(998, static_cast<char>(i)));
  sql(folder.file(), "UPDATE entries SET used = used - 3600*1000 WHERE key IN ('k3', 'k7')");
  sql(folder.file(), "UPDATE entries SET used = used - 1000 * (10 - id) WHERE key NOT IN ('k3', 'k7')");
  CHECK(cache.prune(-1, -1).deleted == 0);
  CHECK(cache.prune(-1, 1800 * 1000).deleted == 2);
  CHECK(cache.find("kernels", "k3") == "");
  const ocl::cache::CleanupResult cleaned = cache.prune(5000, -1);
  CHECK(cleaned.deleted == 3);
  CHECK(cleaned.kept == 5);
  CHECK(cache.find("kernels", "k2") == "");
  CHECK(cache.find("kernels", "k9") != "");
  CHECK(cache.prune(0, -1).kept == 0);
}

TEST_CASE("many small entries keep to the budget as well") {
  Folder folder;
  const int64_t budget = 100000;
  KernelCache cache(folder.file(), budget);
  for (int i = 0; i < 500; ++i) cache.store("tuning", "key" + std::to_string(i), bytes(1000, static_cast<char>(i)));
  CHECK(cache.stats().bytes <= budget + 17 * 1010);
  CHECK(cache.find("tuning", "key499") != "");
}

TEST_CASE("a smaller budget is met when the file is opened for writing") {
  Folder folder;
  {
    KernelCache cache(folder.file(), kBudget);
    for (int i = 0; i < 20; ++i) cache.store("kernels", std::to_string(i), bytes(100000, 1));
  }
  KernelCache cache(folder.file(), 500000);
  cache.store("kernels", "new", "v");
  CHECK(cache.stats().bytes <= 500000);
}

TEST_CASE("a file that is no database is moved aside with one warning") {
  Folder folder;
  std::ofstream(folder.file()) << std::string(20000, 'x');
  KernelCache cache(folder.file(), kBudget);
  cache.store("kernels", "k", "v");
  CHECK(cache.find("kernels", "k") == "v");
  CHECK(fs::exists(folder.file() + ".corrupt"));
  CHECK(folder.warnings.size() == 1);
  CHECK(cache.stats().enabled);
  CHECK(cache.stats().problem.find("corrupt") != std::string::npos);
}

TEST_CASE("damage inside the file is survived") {
  Folder folder;
  {
    KernelCache cache(folder.file(), kBudget);
    for (int i = 0; i < 200; ++i) cache.store("kernels", std::to_string(i), bytes(5000, static_cast<char>(i)));
  }
  const auto size = fs::file_size(folder.file());
  REQUIRE(size > 500000);
  {
    std::fstream file(folder.file(), std::ios::in | std::ios::out | std::ios::binary);
    for (size_t at = 4096; at + 4096 < size; at += 2 * 4096) {
      file.seekp(static_cast<std::streamoff>(at));
      file << std::string(4096, '\xa5');
    }
  }
  KernelCache cache(folder.file(), kBudget);
  for (int i = 0; i < 200; ++i) {
    const std::string value = cache.find("kernels", std::to_string(i));
    CHECK((value.empty() || value == bytes(5000, static_cast<char>(i))));
  }
  cache.store("kernels", "k", "v");
  CHECK(cache.find("kernels", "k") == "v");
  CHECK(folder.warnings.size() <= 1);
}

TEST_CASE("a truncated file is survived") {
  Folder folder;
  {
    KernelCache cache(folder.file(), kBudget);
    for (int i = 0; i < 100; ++i) cache.store("kernels", std::to_string(i), bytes(5000, static_cast<char>(i)));
  }
  fs::resize_file(folder.file(), 10000);
  KernelCache cache(folder.file(), kBudget);
  for (int i = 0; i < 100; ++i) CHECK(cache.find("kernels", std::to_string(i)) == "");
  cache.store("kernels", "k", "v");
  CHECK(cache.find("kernels", "k") == "v");
}

TEST_CASE("another schema is begun anew") {
  Folder folder;
  {
    KernelCache cache(folder.file(), kBudget);
    cache.store("kernels", "k", "v");
  }
  sql(folder.file(), "PRAGMA user_version=999");
  KernelCache cache(folder.file(), kBudget);
  CHECK(cache.find("kernels", "k") == "");
  cache.store("kernels", "k", "w");
  CHECK(cache.find("kernels", "k") == "w");
}

TEST_CASE("a file that cannot be written disables the cache with one warning") {
  Folder folder;
  std::string path;
  SUBCASE("its folder is a file") {
    std::ofstream(folder.path + "/file") << "x";
    path = folder.path + "/file/kernels.db";
  }
  SUBCASE("it is a folder") {
    fs::create_directory(folder.file());
    path = folder.file();
  }
  KernelCache cache(path, kBudget);
  cache.store("kernels", "k", "v");
  cache.store("kernels", "k", "v");
  CHECK(cache.find("kernels", "k") == "");
  CHECK(!cache.stats().enabled);
  CHECK(cache.stats().problem != "");
  CHECK(folder.warnings.size() == 1);
}

TEST_CASE("a file that another process keeps locked disables the cache, soon and with one warning") {
  Folder folder;
  KernelCache cache(folder.file(), kBudget);
  cache.store("kernels", "k", "v");
  sqlite3* other = nullptr;
  REQUIRE(sqlite3_open(folder.file().c_str(), &other) == SQLITE_OK);
  REQUIRE(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) == SQLITE_OK);
  CHECK(cache.find("kernels", "k") == "v");  // Readers do not wait for a writer.
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) cache.store("kernels", std::to_string(i), "w");
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(15));
  CHECK(folder.warnings.size() == 1);
  CHECK(cache.find("kernels", "k") == "");
  CHECK(!cache.stats().enabled);
  sqlite3_close(other);
}

TEST_CASE("a short lock is waited for") {
  Folder folder;
  KernelCache cache(folder.file(), kBudget);
  cache.store("kernels", "k", "v");
  sqlite3* other = nullptr;
  REQUIRE(sqlite3_open_v2(folder.file().c_str(), &other, SQLITE_OPEN_READWRITE | SQLITE_OPEN_FULLMUTEX, nullptr) == SQLITE_OK);
  REQUIRE(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) == SQLITE_OK);
  std::thread release([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    sqlite3_exec(other, "COMMIT", nullptr, nullptr, nullptr);
  });
  cache.store("kernels", "late", "w");
  release.join();
  CHECK(cache.find("kernels", "late") == "w");
  CHECK(folder.warnings.empty());
  sqlite3_close(other);
}

TEST_CASE("threads share one cache") {
  Folder folder;
  KernelCache cache(folder.file(), kBudget);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&cache, t] {
      for (int i = 0; i < 50; ++i) {
        const std::string key = std::to_string(t) + "." + std::to_string(i);
        cache.store("kernels", key, key + " value");
        if (cache.find("kernels", key) != key + " value") cache.store("kernels", "wrong", key);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(cache.find("kernels", "wrong") == "");
  CHECK(cache.stats().entries == 200);
}

namespace {

using ocl::os::Channel;
using ocl::os::Message;

const other_process::Role kWriter("writer", [](Channel&, const Message& arguments) {
  const int number = std::stoi(arguments[1]);
  KernelCache cache(arguments[0], kBudget);
  bool good = true;
  for (int i = 0; i < 40; ++i) {
    const std::string mine = std::to_string(number) + "." + std::to_string(i);
    cache.store("kernels", mine, bytes(3000, static_cast<char>(number * 40 + i)));
    cache.store("kernels", "shared" + std::to_string(i), bytes(3000, static_cast<char>(i)));
    good = good && cache.find("kernels", mine) == bytes(3000, static_cast<char>(number * 40 + i));
    good = good && cache.find("kernels", "shared" + std::to_string(i)) == bytes(3000, static_cast<char>(i));
  }
  return Message{good && cache.stats().enabled ? "good" : "bad"};
});

const other_process::Role kClaimer("claimer", [](Channel& parent, const Message& arguments) {
  KernelCache cache(arguments[0], kBudget);
  const bool good = !cache.claim("ours") && cache.claim("theirs") && cache.claim("theirs") && cache.claim("released");
  cache.release("released");
  parent.send({good ? "good" : "bad"});
  parent.wait_for_end();  // The test kills this process while it waits.
  return Message{};
});

const other_process::Role kEndless("endless writer", [](Channel& parent, const Message& arguments) {
  KernelCache cache(arguments[0], kBudget);
  parent.send({"begins"});
  for (int i = 0; i >= 0; ++i) cache.store("kernels", std::to_string(i % 100), bytes(20000, static_cast<char>(i % 100)));
  return Message{};
});

}  // namespace

TEST_CASE("four processes write one file at once, from its creation on") {
  Folder folder;
  for (int round = 0; round < 5; ++round) {
    const std::string file = folder.path + "/round" + std::to_string(round) + ".db";
    std::vector<std::unique_ptr<ocl::os::Child>> children;
    for (int child = 0; child < 4; ++child) children.push_back(other_process::start("writer", {file, std::to_string(child)}));
    for (const auto& child : children) CHECK(other_process::next(*child) == Message{"good"});
    KernelCache cache(file, kBudget);
    CHECK(cache.stats().entries == 4 * 40 + 40);
    CHECK(cache.find("kernels", "3.39") == bytes(3000, static_cast<char>(3 * 40 + 39)));
  }
}

TEST_CASE("two processes cannot claim the same kernel; a claim ends with its process") {
  Folder folder;
  KernelCache cache(folder.file(), kBudget);
  CHECK(cache.claim("ours"));
  CHECK(cache.claim("ours"));  // Threads of a process do not exclude each other.
  std::unique_ptr<ocl::os::Child> child = other_process::start("claimer", {folder.file()});
  CHECK(other_process::next(*child) == Message{"good"});
  CHECK_FALSE(cache.claim("theirs"));
  CHECK(cache.claim("released"));
  child.reset();
  CHECK(cache.claim("theirs"));
}

TEST_CASE("a process killed while it writes leaves a usable file") {
  Folder folder;
  for (int round = 0; round < 5; ++round) {
    {
      const auto child = other_process::start("endless writer", {folder.file()});
      CHECK(other_process::next(*child) == Message{"begins"});
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
    }
    KernelCache cache(folder.file(), kBudget);
    for (int i = 0; i < 100; ++i) {
      const std::string value = cache.find("kernels", std::to_string(i));
      CHECK((value.empty() || value == bytes(20000, static_cast<char>(i))));
    }
    CHECK(cache.stats().rejected == 0);
  }
  CHECK(folder.warnings.empty());
}
