// csrc/python/cache_bindings.cpp: _C.exec: tables of the cache file that Python reads and writes.
#include "csrc/python/pch.h"
#include "csrc/python/settings.h"

namespace py = pybind11;

namespace ocl::python {
namespace {

constexpr char kTuning[] = "tuning", kGraphs[] = "graphs";

py::object find_graph(const std::string& key) {
  const auto cache = current_cache();
  const std::string value = cache ? cache->find(kGraphs, key) : "";
  if (value.empty()) return py::none();
  return py::bytes(value);
}

void store(const char* table, const std::string& key, const std::string& value) {
  if (const auto cache = current_cache()) cache->store(table, key, value);
}

void erase(const char* table, const std::string& key) {
  if (const auto cache = current_cache()) cache->erase(table, key);
}

}  // namespace

void bind_cache(py::module_& m) {
  py::module_ e = m.attr("exec");
  e.def("find_graph", &find_graph, py::arg("key"));
  e.def(
      "store_graph", [](const std::string& key, const std::string& value) { store(kGraphs, key, value); }, py::arg("key"),
      py::arg("value"));
  e.def("erase_graph", [](const std::string& key) { erase(kGraphs, key); }, py::arg("key"));
  e.def("tuning_rows", [] {
    const auto cache = current_cache();
    return cache ? cache->entries(kTuning) : std::vector<std::pair<std::string, std::string>>();
  });
  e.def(
      "store_tuning", [](const std::string& key, const std::string& value) { store(kTuning, key, value); }, py::arg("key"),
      py::arg("value"));
  e.def("erase_tuning", [](const std::string& key) { erase(kTuning, key); }, py::arg("key"));
}

}  // namespace ocl::python
