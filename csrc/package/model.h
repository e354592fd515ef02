// csrc/package/model.h: a package on a device: its weights in device memory, its methods as plans, and calls of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/exec/executor.h"
#include "csrc/package/contents.h"
#include "csrc/package/tensor.h"
#include "csrc/runtime/build/program.h"
#include "csrc/runtime/device/device.h"

namespace ocl::package {

struct ModelOptions {
  std::string device;           // Number of the device, or a part of its name; "" for the first one.
  std::string cache;            // Path of the cache for kernels; "" keeps none.
  bool trust_binaries = false;  // Uses the native code in the package. It can do anything: set it for files of your own.
  int64_t most_kept_bytes = 0;  // Limit on the bytes of packed weights that are kept beside the weights.
};

/// A package on a device. Thread-safe: calls of one method run one after the other. All work is in one in-order queue of the
/// device, so a call sees what earlier calls wrote. Nothing waits except read_tensor() and synchronize().
class Model {
 public:
  /// Reads the package. ConfigError if the file or the device cannot be used. A thread uploads the tensors meanwhile; what
  /// needs them waits for it, and throws ConfigError if they are damaged.
  Model(const std::string& path, const ModelOptions& options);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  runtime::Device& device() const { return device_; }
  const std::vector<Method>& methods() const { return contents_.methods; }
  const std::vector<Tensor>& tensors() const { return contents_.tensors; }
  /// Returns the number of a method. ConfigError that names the methods if there is none of this name.
  int find(const std::string& name) const;
  /// Makes the plan of a method, if it is not made yet: schedules its graph, and builds kernels or loads them from the cache.
  void prepare(int method);
  /// Enqueues a call. ConfigError that names the argument if an argument does not fit.
  std::vector<Value> call(int method, const std::vector<Value>& arguments);
  /// Returns a tensor of the package, such as a part of its state.
  DeviceTensor tensor(int number) const;
  /// Gives the tensors that methods write their first contents again.
  void reset();
  /// Waits for the upload and for all work of the device.
  void synchronize();
  /// Sets the seed of random numbers. Without it, the seed is 0.
  void seed(uint64_t seed);

 private:
  struct Prepared {
    std::mutex mutex;
    std::unique_ptr<exec::Executor> executor;
  };

  exec::Executor& executor(int method);
  /// Returns the address of (seed, offset), and advances the offset by `count`.
  void* random_state(uint64_t count, std::vector<std::shared_ptr<Memory>>& held);
  std::vector<Value> results_of(const Method& method, const std::vector<Value>& arguments, const std::vector<int64_t>& symbols,
                                const std::vector<DeviceTensor>& outputs) const;
  void upload(int64_t storage, const std::shared_ptr<Memory>& memory);
  void upload_all();

  runtime::Device& device_;
  ModelOptions options_;
  cache::PackageFile file_;  // Used by the uploading thread, and then by reset() with the mutex.
  std::mutex reset_mutex_;
  Contents contents_;
  runtime::BinaryStore binaries_;
  std::map<int64_t, std::shared_ptr<Memory>> storages_;
  std::vector<DeviceTensor> tensors_;
  std::vector<std::unique_ptr<Prepared>> prepared_;
  std::mutex random_mutex_;
  uint64_t seed_ = 0, offset_ = 0;
  std::atomic<bool> closing_{false};
  std::shared_future<void> uploading_;
};

}  // namespace ocl::package
