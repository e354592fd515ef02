// csrc/torch/copy.cpp: copies between host and devices, with any dtypes and strides. If both sides are dense with equal
// layouts, a copy is one transfer. Within a device, kernels/base/copy.cl handles strides and conversions. Conversions
// that it lacks (such as float8_e8m0fnu) go through the host, which is counted as an op that ran on the CPU.
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "csrc/torch/copy_kernel.h"
#include "csrc/torch/device_copy.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/host_allocator.h"
#include "csrc/torch/number_checks.h"
#include "csrc/torch/refusals.h"
#include "csrc/torch/tensor_location.h"

namespace ocl::aten {

namespace {

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
  upload_bytes(src.const_data_ptr(), dst, non_blocking);
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
    const bool direct =
        dst.is_non_overlapping_and_dense() && has_copy_kernel(src.scalar_type(), dst.scalar_type(), src.device().index());
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

std::string dtype_name(const at::Tensor& t) { return std::string(c10::getDtypeNames(t.scalar_type()).first); }

void within_device(const at::Tensor& src, const at::Tensor& dst);

/// Converts between complex types, or between a complex and a real type, by copies of the real numbers in their memory.
void convert_complex(const at::Tensor& src, const at::Tensor& dst) {
  if (src.is_complex() && dst.is_complex()) return within_device(at::view_as_real(src), at::view_as_real(dst));
  if (src.is_complex() && dst.scalar_type() == at::kBool) return within_device(at::ne(src, 0), dst);
  if (src.is_complex()) return within_device(at::view_as_real(src).select(-1, 0), dst);
  const at::Tensor parts = at::view_as_real(dst);
  within_device(src, parts.select(-1, 0));
  parts.select(-1, 1).zero_();
}

constexpr int64_t kLarge = 1 << 20;  // Bytes from which on kernels copy and fill.

/// True if a kernel copies a dense block of memory faster than the runtime. On two cores of a Zen 5, Intel's copies 4 MB in 101
/// us and a kernel in 53, 1 MB in 28 and 24, 256 KB in 5 and 8; PoCL's takes as long as a kernel. GPUs copy at their full
/// bandwidth.
bool copies_by_kernel(const runtime::Device& device, const at::Tensor& src) {
  return device.caps().is_cpu && src.element_size() <= 8 && static_cast<int64_t>(src.nbytes()) >= kLarge;
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
    if (copies_by_kernel(device, src)) return launch_copy(src, dst);
    return current_queue(device.index()).copy(from.mem, from.offset_bytes, to.mem, to.offset_bytes, bytes);
  }
  if (has_copy_kernel(src.scalar_type(), dst.scalar_type(), device.index())) return launch_copy(src, dst);
  if (src.is_complex() || dst.is_complex()) return convert_complex(src, dst);
  count_host_copy("aten::copy_ from " + dtype_name(src) + " to " + dtype_name(dst), src);
  const at::Tensor host = contiguous_like(src, src.scalar_type(), at::kCPU);
  device_to_host(src, host, false);
  host_to_device(host, dst, false);
}

/// Copies to another device by send(). Returns false if that is not possible; the contents of `dst` are undefined then.
bool between_devices(const at::Tensor& src, const at::Tensor& dst) {
  if (transferable(src, dst)) return send(src, dst);
  const bool narrower = dst.element_size() < src.element_size();
  const at::Device converting = narrower ? src.device() : dst.device();
  if (!can_send(src, dst) || !has_copy_kernel(src.scalar_type(), dst.scalar_type(), converting.index())) return false;
  // The elements travel densely, in the type that takes fewer bytes.
  const at::ScalarType type = narrower ? dst.scalar_type() : src.scalar_type();
  at::Tensor sent = src;
  if (narrower || !src.is_non_overlapping_and_dense()) {
    sent = dst.is_non_overlapping_and_dense() ? at::empty_strided(dst.sizes(), dst.strides(), src.options().dtype(type))
                                              : contiguous_like(src, type, src.device());
    within_device(src, sent);
  }
  if (transferable(sent, dst)) return send(sent, dst);
  const at::Tensor received = at::empty_strided(sent.sizes(), sent.strides(), dst.options().dtype(type));
  if (!send(sent, received)) return false;
  within_device(received, dst);
  return true;
}

/// Copies the numbers as they are in memory. The caller handles conjugate and negative bits.
void copy_physical(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  const bool from_ocl = src.device().type() == c10::kPrivateUse1, to_ocl = dst.device().type() == c10::kPrivateUse1;
  if (from_ocl && to_ocl) {
    if (src.device() == dst.device()) return within_device(src, dst);
    if (between_devices(src, dst)) return;
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

/// Returns `t`, conjugated if `view` has the conjugate bit and negated if it has the negative bit.
at::Tensor with_bits_of(const at::Tensor& view, const at::Tensor& t) {
  const at::Tensor conjugated = view.is_conj() ? t.conj() : t;
  return view.is_neg() ? conjugated._neg_view() : conjugated;
}

}  // namespace

void copy_tensor(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  if (dst.numel() == 0) return;
  const Writes writes{dst};
  const at::Tensor from = src.sizes() == dst.sizes() ? src : src.expand(dst.sizes());
  if (from.is_conj() == dst.is_conj() && from.is_neg() == dst.is_neg())
    return copy_physical(physical(from), physical(dst), non_blocking);
  // One side is a lazy conjugate or negative view. Within a device, ops resolve it there, otherwise the host does.
  if (from.device() == dst.device()) {
    const at::Tensor to = physical(dst);
    at::Tensor source = physical(from).to(to.scalar_type());
    if (to.is_complex() && from.is_conj() != dst.is_conj()) source = at::conj_physical(source);
    if (from.is_neg() != dst.is_neg()) source = at::neg(source);
    return copy_physical(source, to, non_blocking);
  }
  at::Tensor host = from;
  if (from.device().is_privateuseone()) {
    host = contiguous_like(from, from.scalar_type(), at::kCPU);
    copy_physical(physical(from), host, false);
    host = with_bits_of(from, host);
  }
  if (!dst.device().is_privateuseone()) {
    dst.copy_(host);
    return;
  }
  host = with_bits_of(dst, host.to(dst.scalar_type()));
  copy_physical(host.resolve_conj().resolve_neg().to(at::kCPU), physical(dst), false);
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

/// Fills a dense block of memory by a kernel, in pieces of 8 bytes, if it is large and aligned enough. An OpenCL fill writes
/// with less than half of the bandwidth of some drivers. Returns false if it has filled nothing.
bool fill_by_kernel(const at::Tensor& memory, const at::Tensor& number) {
  constexpr int64_t kPiece = 8;
  const int64_t size = memory.element_size(), first = memory.storage_offset() * size;
  const auto bytes = static_cast<int64_t>(memory.nbytes());
  if (bytes < kLarge || bytes % kPiece != 0 || first % kPiece != 0 || size > kPiece) return false;
  std::array<char, kPiece> pattern{};
  for (int64_t at = 0; at < kPiece; at += size) std::memcpy(pattern.data() + at, number.const_data_ptr(), size);
  launch_fill(memory, std::bit_cast<uint64_t>(pattern));
  return true;
}

at::Tensor& fill_scalar(at::Tensor& self, const at::Scalar& value) {
  if (self.numel() == 0) return self;
  if (self.numel() > 1) check_number(self.scalar_type(), value);  // PyTorch's own fill of one element checks nothing.
  const at::Tensor number = at::empty({}, self.options().device(at::kCPU)).fill_(value);
  const at::Tensor host = with_bits_of(self, number).resolve_conj().resolve_neg(), memory = physical(self);
  at_boundary([&] {
    runtime::Queue& queue = current_queue(self.device().index());
    const Writes writes{self};
    if (self.is_non_overlapping_and_dense()) {
      if (fill_by_kernel(memory, host)) return;
      const runtime::Location to = location(memory);
      return queue.fill(to.mem, to.offset_bytes, self.nbytes(), host.const_data_ptr(), self.element_size());
    }
    copy_tensor(host.to(self.device()), memory, true);
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

// copy_tensor() resolves these bits itself. torch's own resolution would call _copy_from again, endlessly, and would let
// _copy_from_and_resize write to a copy of its target.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}

}  // namespace ocl::aten
