// csrc/torch/ops.cpp: native eager ops, which allocate, view or resize. Copies are in copy.cpp. All other ops use eager_op.cpp.
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorShape.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "csrc/torch/device_state.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/tensor_location.h"

namespace ocl::aten {

namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

int index_of(const std::optional<at::Device>& device) {
  return device.has_value() && device->index() >= 0 ? device->index() : current_device();
}

/// Returns a tensor on a device, with memory of `bytes` bytes but no elements. The caller sets sizes and strides.
at::Tensor with_storage(size_t bytes, at::ScalarType dtype, int device) {
  check_dtype(device, dtype, "aten::empty");
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, allocate_on(device, bytes),
                                                       device_allocator(), /*resizable=*/true);
  return at::detail::make_tensor<c10::TensorImpl>(std::move(storage), kKeys, c10::scalarTypeToTypeMeta(dtype));
}

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                 std::optional<at::Device> device, std::optional<bool> pin_memory, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(!pin_memory.value_or(false), "only CPU tensors can be pinned, not tensors on ocl");
  TORCH_CHECK(layout.value_or(at::kStrided) == at::kStrided, "expected a strided layout, got ", *layout);
  const at::ScalarType type = dtype.value_or(c10::get_default_dtype_as_scalartype());
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  at::detail::check_size_nonnegative(sizes);
  const size_t bytes = at::detail::computeStorageNbytesContiguous(sizes, c10::elementSize(type));
  at::Tensor result = at_boundary([&] { return with_storage(bytes, type, index_of(device)); });
  if (sizes.size() != 1 || sizes[0] != 0) result.unsafeGetTensorImpl()->generic_set_sizes_contiguous(sizes);
  if (format.has_value() && *format != at::MemoryFormat::Contiguous)
    result.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return result;
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device, std::optional<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false), "only CPU tensors can be pinned, not tensors on ocl");
  TORCH_CHECK(layout.value_or(at::kStrided) == at::kStrided, "expected a strided layout, got ", *layout);
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size), strides = C10_AS_INTARRAYREF_SLOW(stride);
  at::detail::check_size_nonnegative(sizes);
  return empty_strided_ocl(sizes, strides, dtype.value_or(c10::get_default_dtype_as_scalartype()), index_of(device));
}

void grow_storage(const at::Tensor& self, size_t bytes) {
  if (self.numel() > 0 && self.storage().nbytes() < bytes)
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(self.storage(), bytes);
}

const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  if (self.sizes() != sizes) {
    impl->set_sizes_contiguous(sizes);
    grow_storage(self, at::detail::computeStorageNbytesContiguous(sizes, self.element_size(), self.storage_offset()));
  }
  if (format.has_value()) {
    TORCH_CHECK(*format != at::MemoryFormat::Preserve, "resize_: unsupported memory format ", *format);
    impl->empty_tensor_restride(*format);
  }
  return self;
}

at::Tensor& set_storage_offset(at::Tensor& self, at::Storage source, c10::SymInt offset, c10::SymIntArrayRef size,
                               c10::SymIntArrayRef stride) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size), strides = C10_AS_INTARRAYREF_SLOW(stride);
  const int64_t first = offset.expect_int();
  TORCH_CHECK(strides.empty() || strides.size() == sizes.size(), "set_: ", sizes.size(), " sizes but ", strides.size(),
              " strides");
  TORCH_CHECK(first >= 0, "set_: invalid storage offset ", first);
  TORCH_CHECK(source.device_type() == c10::kPrivateUse1, "set_: the storage is on ", source.device(), ", the tensor on ",
              self.device());
  c10::TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(first);
  if (strides.empty() && !sizes.empty())
    impl->set_sizes_contiguous(sizes);
  else
    impl->set_sizes_and_strides(sizes, strides);
  grow_storage(self, at::detail::computeStorageNbytes(self.sizes(), self.strides(), self.element_size(), first));
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.element_size());
  return set_storage_offset(self, std::move(source), 0, c10::fromIntArrayRefSlow({count}), {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()) return self;
  return set_storage_offset(self, source.storage(), source.storage_offset(), c10::fromIntArrayRefSlow(source.sizes()),
                            c10::fromIntArrayRefSlow(source.strides()));
}

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                      std::optional<c10::SymInt> offset) {
  return at::native::as_strided_tensorimpl(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
                                           offset.has_value() ? std::optional<int64_t>(offset->expect_int()) : std::nullopt);
}
at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}
at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}

/// Allows `parameter.data = tensor` across devices. Module.to() then keeps its Parameter objects, which optimizers and
/// shared weights refer to.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const auto plain = [](const at::Tensor& t) {
    return t.layout() == at::kStrided && (t.is_cpu() || t.is_privateuseone()) && !t.key_set().has(c10::DispatchKey::Python);
  };
  return plain(self) && plain(from);
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  static_cast<c10::DeviceAllocator*>(device_allocator())->recordStream(self.storage().data_ptr(), stream);
}

}  // namespace

at::Tensor empty_strided_ocl(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype, int device) {
  const size_t bytes = at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(dtype));
  at::Tensor result = at_boundary([&] { return with_storage(bytes, dtype, device); });
  result.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return result;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", as_strided);
  m.impl("view", view);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);
  m.impl("resize_", resize);
  m.impl("set_.source_Storage", set_storage);
  m.impl("set_.source_Storage_storage_offset", set_storage_offset);
  m.impl("set_.source_Tensor", set_tensor);
  m.impl("record_stream", record_stream);
  m.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
}

}  // namespace ocl::aten
