// csrc/python/cache_bindings.cpp: _C.exec functions of the kernel cache: its path, its contents and its settings.
#include <pybind11/typing.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <vector>

#include "csrc/cache/package_file.h"
#include "csrc/python/fields.h"
#include "csrc/python/pch.h"
#include "csrc/python/settings.h"
#include "csrc/support/path.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/tensor_location.h"

namespace ocl::python {
namespace {

using cache::KernelCache;

struct SharedSettings {
  std::mutex mutex;
  Settings settings;
};
SharedSettings& shared_settings() {
  // Never destroyed, because plans may outlive static destruction.
  static auto* instance = new SharedSettings;
  return *instance;
}

void configure(const std::string& cache_path, int64_t budget_bytes, const std::string& failed_dir,
               const std::string& dump_dir) {
  const auto cache = std::make_shared<cache::KernelCache>(cache_path, budget_bytes);
  {
    const std::lock_guard lock(shared_settings().mutex);
    shared_settings().settings = {cache, failed_dir, dump_dir};
  }
  aten::set_build_context(exec::binary_store(cache), failed_dir);
  if (!dump_dir.empty() && std::filesystem::create_directories(path_of(dump_dir)))
    std::filesystem::permissions(path_of(dump_dir), std::filesystem::perms::owner_all);
}

py::dict cache_stats(KernelCache& cache) {
  const cache::CacheStats s = cache.stats();
  py::dict d;
  OCL_ITEMS(s, enabled, path, problem, entries, bytes, hits, misses, stores, evictions, rejected)
  return d;
}

/// Calls call(cache) and returns its result. Returns an empty value if there is no cache.
template <class Call>
auto with_cache(const Call& call) {
  const std::shared_ptr<KernelCache> cache = settings().cache;
  return cache ? call(*cache) : decltype(call(*cache))();
}

py::dict dict_of(const cache::CleanupResult& cleaned) {
  py::dict d;
  OCL_ITEMS(cleaned, kept, deleted, problem)
  return d;
}

/// Returns rows (table, number of entries, bytes).
std::vector<std::tuple<std::string, int64_t, int64_t>> cache_tables(KernelCache& cache) {
  std::vector<std::tuple<std::string, int64_t, int64_t>> rows;
  for (const cache::TableStats& row : cache.tables()) rows.emplace_back(row.table, row.entries, row.bytes);
  return rows;
}

}  // namespace

Settings settings() {
  const std::lock_guard lock(shared_settings().mutex);
  return shared_settings().settings;
}

void bind_cache(py::module_& e) {
  e.def(
      "package_checksum",
      [](const py::buffer& bytes) {
        const py::buffer_info info = bytes.request();
        return cache::package_checksum(info.ptr, static_cast<size_t>(info.size * info.itemsize));
      },
      py::arg("bytes"));
  e.attr("PACKAGE_ID") = cache::kPackageId;
  e.attr("PACKAGE_VERSION") = cache::kPackageVersion;
  e.def("configure", &configure, py::arg("cache_path"), py::arg("budget_bytes"), py::arg("failed_dir"), py::arg("dump_dir"));
  e.def("cache_stats", [] { return with_cache(&cache_stats); });
  e.def("cache_tables", [] { return with_cache(&cache_tables); });
  e.def("checkpoint_cache", [] {
    if (const std::shared_ptr<KernelCache> cache = settings().cache) cache->checkpoint();
  });
  e.def("cache_clear", [] { with_cache([](KernelCache& cache) { cache.clear(); }); });
  e.def("cache_verify", [] { return dict_of(with_cache([](KernelCache& cache) { return cache.verify(); })); });
  e.def(
      "cache_prune",
      [](int64_t most_bytes, int64_t unused_ms) {
        return dict_of(with_cache([&](KernelCache& cache) { return cache.prune(most_bytes, unused_ms); }));
      },
      py::arg("most_bytes"), py::arg("unused_ms"));
  e.def(
      "cache_keys",
      [](const std::string& table) { return with_cache([&](KernelCache& cache) { return cache.keys(table.c_str()); }); },
      py::arg("table"));
  e.def(
      "cache_used",
      [](const std::string& table) { return with_cache([&](KernelCache& cache) { return cache.used(table.c_str()); }); },
      py::arg("table"));
  e.def(
      "cache_find",
      [](const std::string& table, const std::string& key) {
        return py::bytes(with_cache([&](KernelCache& cache) { return cache.find(table.c_str(), key); }));
      },
      py::arg("table"), py::arg("key"));
  e.def(
      "cache_store",
      [](const std::string& table, const std::string& key, const py::typing::Union<py::bytes, py::str>& value) {
        with_cache([&](KernelCache& cache) { cache.store(table.c_str(), key, value.cast<std::string>()); });
      },
      py::arg("table"), py::arg("key"), py::arg("value"));
  e.def(
      "cache_erase",
      [](const std::string& table, const std::string& key) {
        with_cache([&](KernelCache& cache) { cache.erase(table.c_str(), key); });
      },
      py::arg("table"), py::arg("key"));
  e.def("store_prefix", [](int index) { return runtime::store_prefix(aten::device_at(index)); }, py::arg("device_index"));
  e.def("tuning_rows", [] { return with_cache([](KernelCache& cache) { return cache.entries("tuning"); }); });
}

}  // namespace ocl::python
