// csrc/torch/sparse.cpp: where every op on a sparse tensor starts. torch's own kernels of many of these ops call only other
// ops, so they serve ocl too. sparse_coo.cpp and sparse_product.cpp have the others. What is left runs on the CPU.
#include "csrc/torch/sparse.h"

#include <ATen/native/Resize.h>
#include <ATen/native/SparseTensorUtils.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "csrc/support/words.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/refusals.h"

namespace ocl::aten {

namespace {

using DispatchKey = c10::DispatchKey;

// Ops of COO and of compressed tensors that torch computes by other ops alone. CUDA and the CPU share these kernels.
constexpr std::string_view kElementwise =
    "abs angle asin asinh atan atanh ceil deg2rad erf erfinv expm1 floor frac isinf isnan isneginf isposinf log1p nan_to_num "
    "neg pow rad2deg relu round sgn sign signbit sin sinh sqrt tan tanh trunc conj_physical threshold_backward zero_ normal_";
constexpr std::string_view kCoo =
    "view_as_real view_as_complex sub cat copy_ div floor_divide empty empty_like mm mv narrow_copy permute unsqueeze zeros "
    "native_norm norm clone any sum resize_as_sparse_ sparse_resize_ sparse_resize_and_clear_ _sparse_broadcast_to "
    "_sparse_coo_tensor_with_dims _sparse_coo_tensor_with_dims_and_tensors _to_dense _to_sparse _to_sparse_csr "
    "_to_sparse_csc _to_sparse_bsr _to_sparse_bsc sparse_dim dense_dim _dimI _dimV _nnz is_coalesced _indices _values "
    "_coalesced_ indices values copy_sparse_to_sparse_";
constexpr std::string_view kCompressed =
    "_conj_physical fill_ clone copy_ empty empty_like resize_ resize_as_sparse_ mm addmm select select_copy sum sparse_mask "
    "sparse_dim dense_dim _nnz values crow_indices col_indices ccol_indices row_indices _to_dense _to_sparse";
constexpr std::string_view kBlocks = "_to_sparse_bsr _to_sparse_bsc";
// Sums and products of two tensors. torch computes all forms but `out` by the form `out`.
constexpr std::string_view kBinary = "add mul";
// Ops that make sparse tensors of dense ones.
constexpr std::string_view kMakers = "_to_sparse _to_sparse_csr _to_sparse_csc _to_sparse_bsr _to_sparse_bsc";

/// Returns the device of the first ocl tensor among the arguments, or the device that is asked for.
std::optional<at::Device> device_of_call(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  std::optional<at::Device> asked;
  for (size_t i = stack.size() - op.schema().arguments().size(); i < stack.size(); ++i) {
    const c10::IValue& value = stack[i];
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().is_privateuseone()) return value.toTensor().device();
    if (value.isTensorList())
      for (const at::Tensor& t : value.toTensorVector())
        if (t.is_privateuseone()) return t.device();
    if (value.isDevice() && value.toDevice().is_privateuseone()) asked = value.toDevice();
  }
  return asked;
}

/// Calls torch's kernel for another key. The device becomes the current one, because a new sparse tensor is on it.
template <DispatchKey key>
void call_kernel_of(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::OptionalDeviceGuard guard(device_of_call(op, *stack));
  op.redispatchBoxed(c10::DispatchKeySet(key), stack);
}

/// Registers torch's kernels for the key `from`. `serves` is asked with the name and the overload.
template <DispatchKey from, class Serves>
void share(torch::Library& m, const Serves& serves) {
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0 || !serves(std::string_view(name.name).substr(6), name.overload_name)) continue;
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (op.has_value() && op->hasKernelForDispatchKey(from))
      m.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&call_kernel_of<from>>());
  }
}

bool is_elementwise(std::string_view name) {
  return has_word(kElementwise, name) || (name.ends_with('_') && has_word(kElementwise, name.substr(0, name.size() - 1)));
}
bool is_binary(std::string_view name, std::string_view overload) {
  return overload != "out" &&
         (has_word(kBinary, name) || (name.ends_with('_') && has_word(kBinary, name.substr(0, name.size() - 1))));
}
bool is_in_place_of_coo(std::string_view name) {
  return name.ends_with('_') && has_word(kCoo, name.substr(0, name.size() - 1));
}

// The CPU as last resort.

bool is_sparse_layout(const at::Tensor& t) { return t.layout() != at::kStrided; }

/// Stores a result that was computed on the CPU in the argument that the op writes.
void write_back(const at::Tensor& result, const at::Tensor& argument) {
  if (argument.layout() == at::kSparse) {
    at::Tensor target = argument;
    at::copy_sparse_to_sparse_(target, result);
  } else if (is_sparse_layout(argument)) {
    argument.resize_as_sparse_(result.to(argument.device())).copy_(result);
  } else {
    at::native::resize_output(argument, result.sizes());
    argument.copy_(result);
  }
}

/// The tensors of a call before they were copied to the CPU.
class OnCpu {
 public:
  OnCpu(const c10::OperatorHandle& op, torch::jit::Stack& stack) : op_(op), stack_(stack) {
    const size_t first = stack.size() - op.schema().arguments().size();
    for (size_t i = first; i < stack.size(); ++i) {
      c10::IValue& value = stack[i];
      originals_.push_back(value);
      if (value.isTensor()) {
        value = moved(value.toTensor());
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& t : value.toTensorVector()) list.push_back(moved(t));
        value = list;
      } else if (value.isDevice()) {
        value = at::Device(at::kCPU);
      }
      copies_.push_back(value);
    }
  }

  /// Writes back what the op wrote, and moves the results to the device.
  void finish() {
    const auto& arguments = op_.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      const c10::AliasInfo* alias = arguments[i].alias_info();
      if (alias != nullptr && alias->isWrite() && originals_[i].isTensor() && originals_[i].toTensor().defined())
        write_back(copies_[i].toTensor(), originals_[i].toTensor());
    }
    const auto& returns = op_.schema().returns();
    for (size_t i = 0; i < returns.size(); ++i) {
      c10::IValue& value = stack_[stack_.size() - returns.size() + i];
      const c10::AliasInfo* alias = returns[i].alias_info();
      if (alias != nullptr && alias->isWrite()) {
        for (size_t a = 0; a < arguments.size(); ++a)
          if (arguments[a].alias_info() != nullptr && *arguments[a].alias_info() == *alias) value = originals_[a];
      } else if (value.isTensor() && value.toTensor().defined()) {
        value = value.toTensor().to(*device_);
      }
    }
  }

 private:
  at::Tensor moved(const at::Tensor& t) {
    if (!t.defined() || !t.is_privateuseone()) return t;
    if (!device_.has_value()) device_ = t.device();
    return t.cpu();
  }

  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  std::vector<c10::IValue> originals_, copies_;
  std::optional<at::Device> device_;
};

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  run_sparse_on_cpu(op, stack, "sparse tensors have no kernel for it");
}

torch::CppFunction on_cpu() { return torch::CppFunction::makeFromBoxedFunction<&fallback>(); }

}  // namespace

void run_sparse_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::string& reason) {
  const Refused refused{c10::toString(op.operator_name()), reason};
  if (fallback_is_forbidden()) forbid(refused, describe_tensors(op, *stack));
  OnCpu call(op, *stack);
  op.callBoxed(stack);  // An error for bad arguments is thrown here, before the op is counted.
  call.finish();
  count(refused);
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) { m.fallback(on_cpu()); }
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) { m.fallback(on_cpu()); }

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  share<DispatchKey::SparseCPU>(m, [](std::string_view name, std::string_view overload) {
    return is_elementwise(name) || is_binary(name, overload) || is_in_place_of_coo(name) || has_word(kCoo, name);
  });
}
TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  share<DispatchKey::SparseCsrCPU>(m, [](std::string_view name, std::string_view overload) {
    if (name == "addmm" && overload == "out") return false;  // sparse_product.cpp has it.
    return is_elementwise(name) || is_binary(name, overload) || has_word(kCompressed, name) || has_word(kBlocks, name) ||
           (name == "mul" && overload == "out");
  });
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  share<DispatchKey::CPU>(m, [](std::string_view name, std::string_view) { return has_word(kMakers, name); });
}

}  // namespace ocl::aten
