// csrc/torch/copy.cpp: copies between host and devices, with any dtypes and strides. If both sides are dense with equal
// layouts, a copy is one transfer. Within a device, kernels/base/copy.cl handles strides and conversions. Conversions
// that it lacks (complex, 8-bit floats) go through the host.
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>

#include "csrc/codegen/kernel_files.h"
#include "csrc/runtime/history.h"
#include "csrc/runtime/program.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/host_allocator.h"
#include "csrc/torch/tensor_location.h"

namespace ocl::aten {

namespace {

constexpr size_t kStagedBytes = 1 << 20;  // Pageable host data up to this many bytes is staged, so the caller need not wait.
constexpr int kMaxDims = 8;               // Limit of kernels/base/copy.cl.

/// The struct `Shape` of kernels/base/copy.cl.
struct Shape {
  uint64_t size[kMaxDims], src_stride[kMaxDims], dst_stride[kMaxDims];
  uint64_t places, dims;
};

/// Returns the name of an element type in kernels/base/copy.cl; nullptr if the kernel cannot convert it.
const char* kernel_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kBool:
      return "boolean";
    case at::kByte:
      return "u8";
    case at::kChar:
      return "i8";
    case at::kShort:
      return "i16";
    case at::kInt:
      return "i32";
    case at::kLong:
      return "i64";
    case at::kUInt16:
      return "u16";
    case at::kUInt32:
      return "u32";
    case at::kUInt64:
      return "u64";
    case at::kHalf:
      return "f16";
    case at::kBFloat16:
      return "bf16";
    case at::kFloat:
      return "f32";
    case at::kDouble:
      return "f64";
    default:
      return nullptr;
  }
}

/// Returns the names of both element types; ("", "") if the kernel cannot do this conversion.
std::pair<std::string, std::string> kernel_types(at::ScalarType src, at::ScalarType dst, int device) {
  if (src == dst) {
    const std::string raw = "raw" + std::to_string(at::elementSize(src));
    return {raw, raw};
  }
  const char *from = kernel_type(src), *to = kernel_type(dst);
  if (from == nullptr || to == nullptr) return {};
  if ((src == at::kDouble || dst == at::kDouble) && !has_fp64(device)) return {};
  return {from, to};
}

struct CopyKernel {
  std::shared_ptr<runtime::Program> program;
  runtime::KernelHandle kernel;
  std::string name;
  std::array<size_t, 3> local;
  size_t chunk;
  std::mutex mutex;  // Held from setting the arguments until the launch is enqueued.
};

/// Settings for building copy kernels.
struct BuildContext {
  std::mutex mutex;
  runtime::BinaryStore store;
  std::string failed_dir;
  std::function<void()> configure;  // Sets the other members.
};
BuildContext& build_context() {
  static auto* instance = new BuildContext;  // Never destroyed, because threads may outlive static destruction.
  return *instance;
}

/// Calls `configure`, then returns the store and the folder. Holds no lock during `configure`, because it may take the GIL.
std::pair<runtime::BinaryStore, std::string> configured_context() {
  BuildContext& context = build_context();
  std::unique_lock lock(context.mutex);
  if (const std::function<void()> configure = context.configure) {
    lock.unlock();
    configure();
    lock.lock();
  }
  return {context.store, context.failed_dir};
}

CopyKernel& copy_kernel(runtime::Device& device, const std::string& src, const std::string& dst, bool wide) {
  static std::mutex mutex;
  static auto* kernels = new std::map<std::tuple<int, std::string, std::string, bool>, std::unique_ptr<CopyKernel>>;
  std::unique_lock lock(mutex);
  std::unique_ptr<CopyKernel>& entry = (*kernels)[{device.index(), src, dst, wide}];
  if (entry) return *entry;
  lock.unlock();
  const auto [store, failed_dir] = configured_context();
  lock.lock();
  if (entry) return *entry;  // Another thread has built it.
  auto fresh = std::make_unique<CopyKernel>();
  fresh->name = "copy_" + src + "_" + dst + (wide ? "_wide" : "");
  fresh->chunk = device.caps().is_cpu ? 1024 : 1;
  fresh->local = device.caps().is_cpu ? std::array<size_t, 3>{1, 16, 1} : std::array<size_t, 3>{32, 4, 1};
  std::string text = "#define NAME " + fresh->name + "\n#define SRC " + src + "\n#define DST " + dst + "\n#define CHUNK " +
                     std::to_string(fresh->chunk) + "\n";
  if (wide) text += "#define PLACE ulong\n";
  if (src == "f64" || dst == "f64") text += "#define USES_F64\n";
  if ((src == "f16" || dst == "f16") && !device.caps().fp16_convert) text += codegen::kernel_file("base/halves");
  text += codegen::kernel_file("base/copy");
  fresh->program = runtime::build_programs(
                       device, {{fresh->name, text, "aten::copy_ from " + src + " to " + dst, fresh->local}}, store, failed_dir)
                       .front();
  fresh->kernel = fresh->program->create_kernel(fresh->name);
  entry = std::move(fresh);
  return *entry;
}

/// Drops dimensions of size 1, sorts the other dimensions from the innermost of `dst`, and merges neighbours where both strides
/// allow it. Returns false if more than kMaxDims dimensions remain.
bool merge_dims(const at::Tensor& src, const at::Tensor& dst, Shape& shape) {
  std::vector<int64_t> order;
  for (int64_t k = dst.dim() - 1; k >= 0; --k)
    if (dst.size(k) != 1) order.push_back(k);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return dst.stride(a) < dst.stride(b); });
  shape = {};
  int dims = 0;
  for (const int64_t k : order) {
    const uint64_t size = dst.size(k), s = src.stride(k), d = dst.stride(k);
    if (dims > 0) {
      const int last = dims - 1;
      if (s == shape.src_stride[last] * shape.size[last] && d == shape.dst_stride[last] * shape.size[last]) {
        shape.size[last] *= size;
        continue;
      }
    }
    if (dims == kMaxDims) return false;
    shape.size[dims] = size;
    shape.src_stride[dims] = s;
    shape.dst_stride[dims] = d;
    ++dims;
  }
  if (dims == 0) {
    shape.size[0] = 1;
    dims = 1;
  }
  for (int k = dims; k < kMaxDims; ++k) shape.size[k] = 1;
  shape.dims = dims;
  shape.places = 1;
  for (int k = 1; k < dims; ++k) shape.places *= shape.size[k];
  return true;
}

size_t round_up(size_t value, size_t to) { return (value + to - 1) / to * to; }

/// Describes a copy for recordings.
runtime::LaunchInfoPtr copy_info(const CopyKernel& copy, const at::Tensor& src, const at::Tensor& dst, const Shape& shape,
                                 const std::array<size_t, 3>& global) {
  auto info = std::make_shared<runtime::LaunchInfo>();
  info->kernel = copy.name, info->kind = "copy", info->origin = "aten::copy_";
  info->global = global, info->local = copy.local, info->ops = 1;
  info->bytes = static_cast<int64_t>(shape.size[0] * shape.places * (src.element_size() + dst.element_size()));
  info->title = "copy ";
  for (uint64_t k = shape.dims; k > 0; --k)
    info->title.append(std::to_string(shape.size[k - 1])).append(k > 1 ? "x" : " @ aten::copy_");
  info->title += ", " + runtime::amount(static_cast<double>(info->bytes), "B") + ": " + copy.name;
  return info;
}

void launch_copy(runtime::Device& device, const std::pair<std::string, std::string>& types, const at::Tensor& src,
                 const at::Tensor& dst, const Shape& shape) {
  const bool wide = shape.places >= (uint64_t{1} << 32);
  CopyKernel& copy = copy_kernel(device, types.first, types.second, wide);
  const runtime::Location from = location(src), to = location(dst);
  const uint64_t src_offset = from.offset_bytes / src.element_size(), dst_offset = to.offset_bytes / dst.element_size();
  const std::array<size_t, 3> global{round_up((shape.size[0] + copy.chunk - 1) / copy.chunk, copy.local[0]),
                                     round_up(shape.places, copy.local[1]), 1};
  runtime::Queue& queue = current_queue(device.index());
  const std::lock_guard lock(copy.mutex);
  const auto set = [&](cl_uint slot, size_t bytes, const void* value) {
    OCL_CHECK(clSetKernelArg(copy.kernel.get(), slot, bytes, value), copy.name + " on " + device.describe());
  };
  set(0, sizeof(cl_mem), &from.mem);
  set(1, sizeof src_offset, &src_offset);
  set(2, sizeof(cl_mem), &to.mem);
  set(3, sizeof dst_offset, &dst_offset);
  set(4, sizeof shape, &shape);
  queue.launch(copy.kernel.get(), 2, global, copy.local, nullptr, 0,
               runtime::wanted() ? copy_info(copy, src, dst, shape, global) : nullptr);
}

bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  if (a.dim() != b.dim()) return false;
  for (int64_t k = 0; k < a.dim(); ++k)
    if (a.size(k) != b.size(k) || (a.size(k) != 1 && a.stride(k) != b.stride(k))) return false;
  return true;
}

/// True if both tensors are dense blocks of memory with the same dtype and order of elements.
bool transferable(const at::Tensor& src, const at::Tensor& dst) {
  return src.scalar_type() == dst.scalar_type() && dst.is_non_overlapping_and_dense() && same_layout(src, dst);
}

/// Copies dense host memory to dense device memory.
void upload(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  const size_t bytes = dst.nbytes();
  const runtime::Location to = location(dst);
  runtime::Queue& queue = current_queue(dst.device().index());
  const void* from = src.const_data_ptr();
  if (is_pinned(from)) {
    queue.write(to.mem, to.offset_bytes, from, bytes, !non_blocking);
    if (non_blocking) hold_until_done(from, queue);
  } else if (bytes <= kStagedBytes) {
    const at::DataPtr staged = host_allocator()->allocate(bytes);
    std::memcpy(staged.get(), from, bytes);
    queue.write(to.mem, to.offset_bytes, staged.get(), bytes, false);
    hold_until_done(staged.get(), queue);
  } else {
    queue.write(to.mem, to.offset_bytes, from, bytes, true);
  }
}

/// Copies dense device memory to dense host memory.
void download(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  const runtime::Location from = location(src);
  runtime::Queue& queue = current_queue(src.device().index());
  void* to = dst.mutable_data_ptr();
  const bool async = non_blocking && is_pinned(to);
  queue.read(from.mem, from.offset_bytes, to, src.nbytes(), !async);
  if (async) hold_until_done(to, queue);
}

at::Tensor contiguous_like(const at::Tensor& t, at::ScalarType dtype, at::Device device) {
  return at::empty(t.sizes(), t.options().dtype(dtype).device(device).memory_format(at::MemoryFormat::Contiguous));
}

void copy_physical(const at::Tensor& src, const at::Tensor& dst, bool non_blocking);

void host_to_device(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  if (transferable(src, dst)) return upload(src, dst, non_blocking);
  if (dst.is_non_overlapping_and_dense()) {
    const at::Tensor host = at::empty_strided(dst.sizes(), dst.strides(), src.options().dtype(dst.scalar_type()));
    host.copy_(src);
    return upload(host, dst, false);
  }
  const at::Tensor host = src.to(dst.scalar_type()).contiguous();
  const at::Tensor dense = contiguous_like(dst, dst.scalar_type(), dst.device());
  upload(host, dense, false);
  copy_physical(dense, dst, non_blocking);
}

void device_to_host(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  if (transferable(src, dst)) return download(src, dst, non_blocking);
  if (!src.is_non_overlapping_and_dense()) {
    // Convert on the device if the result can be downloaded straight into `dst`. Otherwise the device only makes the
    // elements dense, and the host converts them.
    const bool direct = dst.is_non_overlapping_and_dense() &&
                        !kernel_types(src.scalar_type(), dst.scalar_type(), src.device().index()).first.empty();
    const at::Tensor dense =
        direct ? at::empty_strided(dst.sizes(), dst.strides(), dst.options().device(src.device()).pinned_memory(false))
               : contiguous_like(src, src.scalar_type(), src.device());
    copy_physical(src, dense, false);
    return device_to_host(dense, dst, non_blocking);
  }
  const at::Tensor host = at::empty_strided(src.sizes(), src.strides(), src.options().device(at::kCPU));
  download(src, host, false);
  dst.copy_(host);
}

void within_device(const at::Tensor& src, const at::Tensor& dst) {
  runtime::Device& device = device_at(dst.device().index());
  if (transferable(src, dst)) {
    const runtime::Location from = location(src), to = location(dst);
    const size_t bytes = dst.nbytes();
    if (from.mem == to.mem && from.offset_bytes == to.offset_bytes) return;
    const bool overlap =
        from.mem == to.mem && from.offset_bytes < to.offset_bytes + bytes && to.offset_bytes < from.offset_bytes + bytes;
    if (overlap) return within_device(src.clone(), dst);
    return current_queue(device.index()).copy(from.mem, from.offset_bytes, to.mem, to.offset_bytes, bytes);
  }
  const auto types = kernel_types(src.scalar_type(), dst.scalar_type(), device.index());
  Shape shape;
  if (!types.first.empty() && merge_dims(src, dst, shape)) return launch_copy(device, types, src, dst, shape);
  const at::Tensor host = contiguous_like(src, src.scalar_type(), at::kCPU);
  device_to_host(src, host, false);
  host_to_device(host, dst, false);
}

/// Copies the numbers as they are in memory. The caller handles conjugate and negative bits.
void copy_physical(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  const bool from_ocl = src.device().type() == c10::kPrivateUse1, to_ocl = dst.device().type() == c10::kPrivateUse1;
  if (from_ocl && to_ocl) {
    if (src.device() == dst.device()) return within_device(src, dst);
    const at::Tensor host = contiguous_like(dst, src.scalar_type(), at::kCPU);
    device_to_host(src, host, false);
    return host_to_device(host, dst, non_blocking);
  }
  if (to_ocl && src.device().is_cpu()) return host_to_device(src, dst, non_blocking);
  if (from_ocl && dst.device().is_cpu()) return device_to_host(src, dst, non_blocking);
  if (to_ocl) return host_to_device(src.cpu(), dst, false);
  const at::Tensor host = contiguous_like(src, src.scalar_type(), at::kCPU);
  device_to_host(src, host, false);
  dst.copy_(host);
}

/// Returns the same memory as a tensor without conjugate and negative bits.
at::Tensor physical(const at::Tensor& t) {
  at::Tensor plain = t.is_conj() ? t.conj() : t;
  return plain.is_neg() ? plain._neg_view() : plain;
}

void check_location(const at::Tensor& t) {
  if (t.device().type() != c10::kPrivateUse1)
    fail(ErrorKind::kConfig, "expected a tensor on an ocl device, got one on " + t.device().str() +
                                 ".\n  do: move it with x.to('ocl'), and the module with model.to('ocl')");
}

}  // namespace

void set_build_context(runtime::BinaryStore store, std::string failed_dir) {
  const std::lock_guard lock(build_context().mutex);
  build_context().store = std::move(store);
  build_context().failed_dir = std::move(failed_dir);
}

void set_configure(std::function<void()> configure) {
  const std::lock_guard lock(build_context().mutex);
  build_context().configure = std::move(configure);
}

runtime::Location location(const at::Tensor& tensor) {
  check_location(tensor);
  if (tensor.numel() == 0) return {};
  const auto* address = static_cast<const char*>(tensor.storage().data());
  runtime::Device& device = device_at(tensor.device().index());
  return device.allocator().use(address + tensor.storage_offset() * tensor.element_size(), current_stream(device.index()));
}

namespace {

/// Tells the allocator, after everything is enqueued, that the contents of `tensor` have changed.
struct Writes {
  const at::Tensor& tensor;
  ~Writes() {
    if (!tensor.device().is_privateuseone()) return;
    const int index = tensor.device().index();
    device_at(index).allocator().wrote(tensor.storage().data(), current_stream(index));
  }
};

}  // namespace

void copy_tensor(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  if (dst.numel() == 0) return;
  const Writes writes{dst};
  const at::Tensor from = src.sizes() == dst.sizes() ? src : src.expand(dst.sizes());
  if (from.is_conj() == dst.is_conj() && from.is_neg() == dst.is_neg())
    return copy_physical(physical(from), physical(dst), non_blocking);
  // One side is a lazy conjugate or negative view. The host resolves it.
  at::Tensor host = contiguous_like(from, from.scalar_type(), at::kCPU);
  copy_physical(physical(from), host, false);
  if (from.is_conj()) host = host.conj();
  if (from.is_neg()) host = host._neg_view();
  host = host.to(dst.scalar_type());
  if (dst.is_conj()) host = host.conj();
  if (dst.is_neg()) host = host._neg_view();
  copy_physical(host.resolve_conj().resolve_neg(), physical(dst), false);
}

namespace {

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  at::assert_no_internal_overlap(dst);
  at_boundary([&] { copy_tensor(self, dst, non_blocking); });
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  if (self.sizes() != dst.sizes()) dst.resize_(self.sizes());
  return copy_from(self, dst, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  const at::Tensor host = at::empty(self.sizes(), self.options().device(at::kCPU));
  copy_from(self, host, false);
  return at::_local_scalar_dense(host);
}

at::Tensor& fill_scalar(at::Tensor& self, const at::Scalar& value) {
  if (self.numel() == 0) return self;
  const at::Tensor host = at::empty({}, self.options().device(at::kCPU)).fill_(value);
  at_boundary([&] {
    runtime::Queue& queue = current_queue(self.device().index());
    const Writes writes{self};
    if (self.is_non_overlapping_and_dense() && !self.is_conj() && !self.is_neg()) {
      const runtime::Location to = location(self);
      return queue.fill(to.mem, to.offset_bytes, self.nbytes(), host.const_data_ptr(), self.element_size());
    }
    copy_tensor(host.to(self.device()), self, true);
  });
  return self;
}

at::Tensor& fill_tensor(at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ needs a value of 0 dimensions, got one of ", value.dim());
  return copy_from(value, self, true), self;
}

at::Tensor& zero(at::Tensor& self) { return fill_scalar(self, 0); }

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("fill_.Scalar", fill_scalar);
  m.impl("fill_.Tensor", fill_tensor);
  m.impl("zero_", zero);
}

// copy_tensor() resolves these bits itself. torch's own resolution would call this function again, endlessly.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

}  // namespace ocl::aten
