// csrc/torch/plan_runner.cpp: calls exec::run with the addresses of torch tensors, and makes tensors of the results.
#include "csrc/torch/plan_runner.h"

#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>

#include <array>
#include <optional>

#include "csrc/runtime/memory/allocator.h"
#include "csrc/runtime/queues/queue.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/tensor_location.h"

namespace ocl::aten {
namespace {

constexpr std::pair<ir::DType, at::ScalarType> kTypes[] = {{ir::DType::kBool, at::kBool},
                                                           {ir::DType::kU8, at::kByte},
                                                           {ir::DType::kI8, at::kChar},
                                                           {ir::DType::kI16, at::kShort},
                                                           {ir::DType::kI32, at::kInt},
                                                           {ir::DType::kI64, at::kLong},
                                                           {ir::DType::kF16, at::kHalf},
                                                           {ir::DType::kBF16, at::kBFloat16},
                                                           {ir::DType::kF32, at::kFloat},
                                                           {ir::DType::kF64, at::kDouble},
                                                           {ir::DType::kF8E4M3, at::kFloat8_e4m3fn},
                                                           {ir::DType::kF8E5M2, at::kFloat8_e5m2},
                                                           {ir::DType::kF8E4M3Fnuz, at::kFloat8_e4m3fnuz},
                                                           {ir::DType::kF8E5M2Fnuz, at::kFloat8_e5m2fnuz}};

constexpr size_t kPattern = 128;     // Largest pattern of one fill in bytes.
constexpr size_t kMostFilled = 512;  // Fills upload CPU tensors of up to this many bytes.

bool is_small_host_tensor(const at::Tensor& tensor) {
  return tensor.is_cpu() && (tensor.numel() == 1 || (tensor.is_contiguous() && tensor.nbytes() <= kMostFilled));
}

/// Device copies of the small CPU tensors of one call. They are freed when everything is enqueued.
struct Uploads {
  runtime::Device& device;
  int stream;
  std::vector<void*> addresses;

  void* add(const at::Tensor& values) {
    const size_t bytes = values.nbytes();
    void* address = device.allocator().allocate(bytes, stream);
    addresses.push_back(address);
    const runtime::Location at = device.allocator().resolve(address);
    runtime::Queue& queue = device.queue(stream);
    const char* host = static_cast<const char*>(values.const_data_ptr());
    // A fill copies its pattern before it returns, so the host values may change at once. Patterns are powers of two.
    for (size_t done = 0, step = kPattern; done < bytes; done += step) {
      while (step > bytes - done) step /= 2;
      queue.fill(at.mem, at.offset_bytes + done, step, host + done, step);
    }
    return address;
  }
  ~Uploads() {
    for (void* address : addresses) device.allocator().free(address);
  }
};

void fill_with_zeros(const at::Tensor& tensor, runtime::Device& device, int stream) {
  const runtime::Location at = device.allocator().resolve(tensor.storage().mutable_data());
  const uint8_t zero = 0;
  device.queue(stream).fill(at.mem, at.offset_bytes, tensor.storage().nbytes(), &zero, sizeof zero);
}

void check_input(const exec::Plan& plan, const at::Tensor& tensor, size_t position) {
  const ir::Graph& graph = plan.schedule.graph;
  const ir::Buffer& buffer = graph.buffers[graph.inputs[position]];
  const bool here = tensor.device().is_privateuseone() && tensor.device().index() == plan.device->index();
  std::string problem;
  if (!here && !is_small_host_tensor(tensor)) {
    const std::string device = "ocl:" + std::to_string(plan.device->index());
    problem = "is on " + tensor.device().str() + ", but the graph was compiled for " + device + "; move it with .to('" +
              device + "')";
  } else if (ir_dtype(tensor.scalar_type()) != buffer.dtype) {
    problem = std::string("has dtype ") + c10::toString(tensor.scalar_type()) + ", but the graph was compiled for " +
              ir::name(buffer.dtype);
  } else {
    return;
  }
  fail(ErrorKind::kConfig, "input " + std::to_string(position) + " of a compiled graph " + problem);
}

at::Tensor at_address(const exec::CallOperand& operand, int device) {
  void* first = static_cast<char*>(operand.address) + operand.offset * ir::size_bytes(operand.dtype);
  const at::Device where(at::kPrivateUse1, static_cast<c10::DeviceIndex>(device));
  return at::from_blob(
      first, operand.sizes, operand.strides, [](void*) {}, at::TensorOptions().dtype(scalar_type(operand.dtype)).device(where),
      where);
}

/// Returns a part of a result's memory as a tensor. For autograd it is no view, because autograd forbids writing to a view that
/// a custom function made.
at::Tensor part_of(const at::Tensor& whole, const exec::TensorShape& shape) {
  at::Tensor part = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(whole.storage()), whole.key_set(), whole.dtype());
  part.unsafeGetTensorImpl()->set_sizes_and_strides(shape.sizes, shape.strides, whole.storage_offset() + shape.offset);
  return part;
}

/// Returns the address of the first element, null if there is none.
void* address_of(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? nullptr : const_cast<void*>(tensor.const_data_ptr());
}

/// Returns a tensor with undefined contents whose memory has `guard` bytes more on each side. Its storage begins at its data.
at::Tensor guarded_tensor(const exec::TensorShape& shape, at::ScalarType dtype, int device, int64_t guard) {
  const size_t bytes = at::detail::computeStorageNbytes(shape.sizes, shape.strides, c10::elementSize(dtype));
  const int64_t all = static_cast<int64_t>(bytes) + 2 * guard, step = 1;
  const at::Tensor block = empty_strided_ocl(all, step, at::kByte, device);
  c10::Allocator* allocator = block.storage().allocator();
  // The context of the data pointer is the address that is freed.
  c10::DataPtr whole = block.storage().set_data_ptr(c10::DataPtr(nullptr, block.device()));
  void* first = whole.release_context();
  c10::DataPtr data(static_cast<char*>(first) + guard, first, allocator->raw_deleter(), block.device());
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, std::move(data), allocator, /*resizable=*/true);
  at::Tensor tensor =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), block.key_set(), c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(shape.sizes, shape.strides);
  return tensor;
}

}  // namespace

at::ScalarType scalar_type(ir::DType dtype) {
  for (const auto& [ours, torchs] : kTypes)
    if (ours == dtype) return torchs;
  fail(ErrorKind::kInternal, std::string("no torch dtype for ") + ir::name(dtype));
}

ir::DType ir_dtype(at::ScalarType type) {
  for (const auto& [ours, torchs] : kTypes)
    if (torchs == type) return ours;
  fail(ErrorKind::kUnsupported,
       std::string("dtype ") + at::toString(type) + " has no kernels on ocl; convert the tensor first");
}

std::vector<at::Tensor> run_plan(exec::Executor& executor, const std::vector<EagerCall>& calls,
                                 const std::vector<int64_t>& symbols, const std::vector<at::Tensor>& inputs,
                                 std::vector<at::Tensor>* own, size_t fault_words) {
  const exec::Plan& plan = *executor.plan;
  at::RecordFunction range(at::RecordScope::FUNCTION);
  if (range.isActive() && plan.op.empty()) range.before("ocl " + plan.label);  // torch itself records an eager op.
  const int device = plan.device->index();
  const c10::DeviceGuard guard(at::Device(at::kPrivateUse1, static_cast<c10::DeviceIndex>(device)));
  const ir::Graph& graph = plan.schedule.graph;
  if (inputs.size() != graph.inputs.size() || static_cast<int>(symbols.size()) != graph.symbols)
    fail(ErrorKind::kInternal, "a compiled graph takes " + std::to_string(graph.inputs.size()) + " tensors and " +
                                   std::to_string(graph.symbols) + " sizes, not " + std::to_string(inputs.size()) + " and " +
                                   std::to_string(symbols.size()));
  const std::lock_guard<std::mutex> lock(executor.mutex);
  exec::bind_symbols(executor.state, symbols);

  const int stream = current_stream(device);
  Uploads uploads{*plan.device, stream, {}};
  std::vector<void*> addresses;
  addresses.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_input(plan, inputs[i], i);
    const bool uploaded = inputs[i].is_cpu() && inputs[i].numel() > 0;
    addresses.push_back(uploaded ? uploads.add(inputs[i]) : address_of(inputs[i]));
  }

  std::vector<at::Tensor> allocated(plan.schedule.allocations.size());
  std::vector<void*> output_addresses(allocated.size());
  const auto allocate = [&](int index) -> void* {
    const runtime::MemoryPurpose purpose(plan.results_purpose);
    const auto i = static_cast<size_t>(index);
    const exec::TensorShape& shape = executor.state.allocation_shapes[i];
    const at::ScalarType dtype = scalar_type(graph.buffers[plan.schedule.allocations[i]].dtype);
    allocated[i] = plan.guard_bytes > 0 ? guarded_tensor(shape, dtype, device, plan.guard_bytes)
                                        : empty_strided_ocl(shape.sizes, shape.strides, dtype, device);
    return address_of(allocated[i]);
  };
  const bool skipped = exec::launches_skipped();
  const bool is_late = own != nullptr && exec::holds_less_late(executor, fault_words) && executor.observers.empty() && !skipped;
  for (size_t i = 0; i < allocated.size() && !is_late; ++i) {
    output_addresses[i] = allocate(static_cast<int>(i));
    if (skipped && output_addresses[i]) fill_with_zeros(allocated[i], *plan.device, stream);
  }

  const exec::CallHandler handler = [&](int call, const std::vector<exec::CallOperand>& operands,
                                        const std::vector<exec::CallOperand>& results) {
    std::vector<at::Tensor> tensors;
    for (const exec::CallOperand& operand : operands) tensors.push_back(at_address(operand, device));
    std::vector<at::Tensor> places(results.size());
    for (size_t i = 0; i < results.size(); ++i)
      if (results[i].address != nullptr) places[i] = at_address(results[i], device);
    const std::vector<at::Tensor> values = calls.at(call)(tensors, places);
    for (size_t i = 0; i < places.size() && i < values.size(); ++i)
      if (places[i].defined() && values[i].defined()) places[i].copy_(values[i]);
  };
  std::optional<exec::LateMemory> late;
  if (is_late) late = {allocate, [&](int input) { (*own)[static_cast<size_t>(input)].reset(); }};
  exec::run(executor, addresses, output_addresses, handler, stream, late ? &*late : nullptr);

  std::vector<at::Tensor> outputs;
  // A tensor object is returned at most once: the caller may change the shape of one result without changing another.
  std::vector<bool> given(allocated.size(), false);
  outputs.reserve(graph.outputs.size());
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const exec::BufferSource& source = plan.output_sources[i];
    const bool is_input = source.kind == exec::BufferSource::Kind::kInput;
    const at::Tensor& base = is_input ? inputs[source.index] : allocated[source.index];
    const exec::TensorShape& shape = executor.state.output_shapes[i];
    const bool whole = shape.offset == 0 && base.sizes() == at::IntArrayRef(shape.sizes) &&
                       base.strides() == at::IntArrayRef(shape.strides) && (is_input || !given[source.index]);
    if (!is_input && whole) given[source.index] = true;
    if (whole)
      outputs.push_back(base);
    else
      outputs.push_back(is_input ? base.as_strided(shape.sizes, shape.strides, base.storage_offset() + shape.offset)
                                 : part_of(base, shape));
  }
  return outputs;
}

}  // namespace ocl::aten
