// csrc/package/tensor.cpp: device memory and tensors of a model, and the choice of a device.
#include "csrc/package/tensor.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "csrc/package/contents.h"
#include "csrc/runtime/device/device_list.h"
#include "csrc/runtime/memory/allocator.h"
#include "csrc/runtime/queues/queue.h"
#include "csrc/support/error.h"

namespace ocl::package {
namespace {

/// Copies elements of `size` bytes from a strided window to dense memory.
void gather(const char* from, const DeviceTensor& tensor, size_t dim, int64_t offset, size_t size, char*& to) {
  if (dim == tensor.sizes.size()) {
    std::memcpy(to, from + offset * static_cast<int64_t>(size), size);
    to += size;
    return;
  }
  for (int64_t i = 0; i < tensor.sizes[dim]; ++i) gather(from, tensor, dim + 1, offset + i * tensor.strides[dim], size, to);
}

/// Returns a dense tensor without memory.
DeviceTensor described(ir::DType dtype, std::vector<int64_t> sizes) {
  DeviceTensor tensor{nullptr, 0, dtype, std::move(sizes), {}};
  int64_t elements = 1;
  for (const int64_t size : tensor.sizes) {
    if (size < 0 || (size > 0 && elements > (int64_t{1} << 48) / size))
      fail(ErrorKind::kConfig, "a tensor has a negative size or too many elements");
    elements *= size;
  }
  tensor.strides.assign(tensor.sizes.size(), 1);
  for (size_t d = tensor.sizes.size(); d-- > 1;)
    tensor.strides[d - 1] = tensor.strides[d] * std::max<int64_t>(tensor.sizes[d], 1);
  return tensor;
}

template <class Value>
Value buffer_info(cl_mem memory, cl_mem_info name) {
  Value value{};
  OCL_CHECK(clGetMemObjectInfo(memory, name, sizeof value, &value, nullptr), "a buffer of the program");
  return value;
}

}  // namespace

Memory::Memory(runtime::Device& device, size_t bytes)
    : device_(device), address_(device.allocator().allocate(bytes, kStream)) {}

Memory::~Memory() { device_.allocator().free(address_); }

int64_t DeviceTensor::elements() const {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

bool DeviceTensor::is_dense() const {
  int64_t expected = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] != 1 && strides[d] != expected) return elements() == 0;
    expected *= sizes[d];
  }
  return true;
}

char* DeviceTensor::address() const { return elements() == 0 ? nullptr : memory->address() + offset * ir::size_bytes(dtype); }

DeviceTensor wrap_memory(runtime::Device& device, ir::DType dtype, std::vector<int64_t> sizes, cl_mem memory, size_t offset) {
  DeviceTensor tensor = described(dtype, std::move(sizes));
  const size_t all = buffer_info<size_t>(memory, CL_MEM_SIZE), bytes = tensor.bytes();
  const auto align = static_cast<size_t>(device.caps().base_align_bytes);
  const auto host = reinterpret_cast<uintptr_t>(buffer_info<void*>(memory, CL_MEM_HOST_PTR));
  if (buffer_info<cl_context>(memory, CL_MEM_CONTEXT) != device.context())
    fail(ErrorKind::kConfig,
         "the buffer belongs to another context than " + device.describe() +
             "; share the context with ocl_opencl_share before a model is opened, or make buffers in that of "
             "ocl_opencl_get");
  if (buffer_info<cl_mem_flags>(memory, CL_MEM_FLAGS) & (CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY))
    fail(ErrorKind::kConfig, "the buffer is read-only or write-only for kernels; make it with CL_MEM_READ_WRITE");
  if (offset > all || bytes > all - offset)
    fail(ErrorKind::kConfig, "the buffer has " + std::to_string(all) + " bytes; the tensor needs " + std::to_string(bytes) +
                                 " from byte " + std::to_string(offset) + " on");
  if ((offset + buffer_info<size_t>(memory, CL_MEM_OFFSET)) % align != 0 || host % align != 0)
    fail(ErrorKind::kConfig, "the tensor begins at a byte that is no multiple of " + std::to_string(align) +
                                 ", which kernels of " + device.describe() + " need");
  if (bytes == 0) return tensor;
  tensor.memory = std::make_shared<Memory>(device, device.allocator().adopt(memory, offset + bytes));
  tensor.offset = static_cast<int64_t>(offset) / ir::size_bytes(dtype);
  return tensor;
}

DeviceTensor make_tensor(runtime::Device& device, ir::DType dtype, std::vector<int64_t> sizes, const void* data) {
  DeviceTensor tensor = described(dtype, std::move(sizes));
  tensor.memory = std::make_shared<Memory>(device, tensor.bytes());
  if (data) write_tensor(tensor, data);
  return tensor;
}

void write_tensor(const DeviceTensor& tensor, const void* data) {
  if (tensor.bytes() == 0) return;
  runtime::Device& device = tensor.memory->device();
  const runtime::Location at = device.allocator().use(tensor.address(), kStream);
  device.queue(kStream).write(at.mem, at.offset_bytes, data, tensor.bytes(), /*blocking=*/true);
  device.allocator().wrote(tensor.address(), kStream);
}

void read_tensor(const DeviceTensor& tensor, void* data) {
  if (tensor.bytes() == 0) return;
  runtime::Device& device = tensor.memory->device();
  const runtime::Location at = device.allocator().use(tensor.address(), kStream);
  if (tensor.is_dense()) return device.queue(kStream).read(at.mem, at.offset_bytes, data, tensor.bytes(), /*blocking=*/true);
  const auto size = static_cast<size_t>(ir::size_bytes(tensor.dtype));
  std::vector<char> window(static_cast<size_t>(extent(tensor.sizes, tensor.strides)) * size);
  device.queue(kStream).read(at.mem, at.offset_bytes, window.data(), window.size(), /*blocking=*/true);
  char* to = static_cast<char*>(data);
  gather(window.data(), tensor, 0, 0, size, to);
}

runtime::Device& find_device(const std::string& selection) {
  const int count = runtime::Device::count();
  if (selection.empty()) return runtime::Device::get(0);
  if (std::all_of(selection.begin(), selection.end(), [](unsigned char c) { return std::isdigit(c); }) && selection.size() < 6)
    return runtime::Device::get(std::stoi(selection));
  const std::vector<runtime::DeviceSummary> devices = runtime::list_devices();
  std::string names;
  for (int i = 0; i < count; ++i) {
    const std::string name = devices[static_cast<size_t>(i)].platform_name + " / " + devices[static_cast<size_t>(i)].name;
    if (runtime::lower(name).find(runtime::lower(selection)) != std::string::npos) return runtime::Device::get(i);
    names += "\n  " + std::to_string(i) + ": " + name;
  }
  fail(ErrorKind::kConfig, "no OpenCL device has '" + selection + "' in its name; the devices are:" + names);
}

}  // namespace ocl::package
