// csrc/cache/package_file.h: reads a package: the SQLite file in which torch_ocl_compile.package.save() keeps a model.
//
//   meta(key, value)                                   who wrote it, with which torch
//   storages(id, bytes), parts(storage, part, data, checksum)                          contents of tensors, in parts
//   tensors(id, name, storage, first, dtype, sizes, strides, written)                  weights, constants and state
//   methods(id, name, structure, graph, checksum)                                      text of an ir::Graph
//   arguments(method, position, name, kind, dtype, sizes), symbols(method, position, argument, dim)
//   conditions(method, position, expression, message)
//   inputs(method, position, kind, number)             where the tensor inputs of the graph come from
//   results(method, position, name, kind, value)       where the results of the method come from
//   kernels(key, binary, checksum)                     native code and plans for named devices
//   application_id: kPackageId; user_version: kPackageVersion
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace ocl::cache {

constexpr int64_t kPackageId = 0x4f434c50;  // "OCLP"
constexpr int64_t kPackageVersion = 1;

struct StoredTensor {
  int64_t id = 0;
  std::string name;
  int64_t storage = 0, first = 0;  // `first`: the element of the storage at which the tensor begins.
  std::string dtype, sizes, strides;
  bool written = false;  // True for state: methods write it, and the next call sees what they wrote.
};
struct StoredArgument {
  std::string name, kind, dtype, sizes;
};
struct StoredSymbol {
  int64_t argument = 0, dim = 0;
};
struct StoredCondition {
  std::string expression, message;
};
struct StoredInput {
  std::string kind;
  int64_t number = 0;
};
struct StoredResult {
  std::string name, kind, value;
};
struct StoredMethod {
  int64_t id = 0;
  std::string name, structure, graph;
  std::vector<StoredArgument> arguments;
  std::vector<StoredSymbol> symbols;
  std::vector<StoredCondition> conditions;
  std::vector<StoredInput> inputs;
  std::vector<StoredResult> results;
};

/// Returns the checksum that a package stores for a graph, a part of a storage, or a binary.
int64_t package_checksum(const void* bytes, size_t size);

/// An open package. Throws ConfigError that names the file if it is no package, has a newer version, or is damaged. The file is
/// only read. Not thread-safe.
class PackageFile {
 public:
  explicit PackageFile(std::string path);
  ~PackageFile();
  const std::string& path() const { return path_; }
  std::vector<StoredTensor> tensors();
  std::vector<StoredMethod> methods();
  /// Returns the size of a storage in bytes.
  int64_t storage_bytes(int64_t storage);
  /// Calls `take` with each part of a storage in order: its first byte, its data and its size.
  void read_storage(int64_t storage, const std::function<void(int64_t first, const void* data, size_t bytes)>& take);
  /// Returns the kernels whose keys begin with `prefix`, without damaged ones: key -> binary.
  std::map<std::string, std::string> kernels(const std::string& prefix);
  /// Returns the value of an entry of `meta`, or "".
  std::string meta(const std::string& key);

 private:
  struct State;
  std::string path_;
  std::unique_ptr<State> state_;
};

}  // namespace ocl::cache
