// csrc/package/tensor.h: device memory, tensors in it, and the values that methods take and return.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "csrc/ir/dtype.h"
#include "csrc/runtime/device/device.h"

namespace ocl::package {

constexpr int kStream = 0;  // All work of all models of a device is in one in-order queue.

/// Device memory that is freed with the last tensor in it. Work that uses it may still be in the queue then.
class Memory {
 public:
  Memory(runtime::Device& device, size_t bytes);
  /// Takes over an address of the device's allocator.
  Memory(runtime::Device& device, void* address) : device_(device), address_(address) {}
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  runtime::Device& device() const { return device_; }
  char* address() const { return static_cast<char*>(address_); }  // Null if there are no bytes.

 private:
  runtime::Device& device_;
  void* address_;
};

/// A tensor on a device.
struct DeviceTensor {
  std::shared_ptr<Memory> memory;
  int64_t offset = 0;  // Offset of element 0 in elements.
  ir::DType dtype = ir::DType::kF32;
  std::vector<int64_t> sizes, strides;  // Strides in elements.

  int64_t elements() const;
  size_t bytes() const { return static_cast<size_t>(elements() * ir::size_bytes(dtype)); }  // Of its elements alone.
  bool is_dense() const;  // True if the elements lie one after the other in row-major order.
  char* address() const;  // Of element 0. Null if there are no elements.
};

/// Makes a dense tensor. `data` are its elements in row-major order; null leaves them undefined. Returns when `data` may
/// change.
DeviceTensor make_tensor(runtime::Device& device, ir::DType dtype, std::vector<int64_t> sizes, const void* data);
/// Makes a dense tensor of a buffer in the device's context, from the byte `offset` on, without a copy. ConfigError if the
/// buffer cannot be used.
DeviceTensor wrap_memory(runtime::Device& device, ir::DType dtype, std::vector<int64_t> sizes, cl_mem memory, size_t offset);
/// Copies elements in row-major order into a dense tensor that has its memory for itself, after the work that is already
/// enqueued. Returns when `data` may change.
void write_tensor(const DeviceTensor& tensor, const void* data);
/// Waits for the work that computes the tensor, and copies its elements to `data` in row-major order.
void read_tensor(const DeviceTensor& tensor, void* data);

/// An argument or a result of a method: nothing, a tensor, an integer or a real number.
using Value = std::variant<std::monostate, DeviceTensor, int64_t, double>;

/// Returns the device that `selection` names: a number, a part of "platform / device", or "" for the first. ConfigError that
/// lists the devices if there is none.
runtime::Device& find_device(const std::string& selection);

}  // namespace ocl::package
