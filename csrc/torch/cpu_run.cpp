// csrc/torch/cpu_run.cpp: runs ops on the CPU, also random ops and writes to expanded tensors.
#include "csrc/torch/cpu_run.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/native_dropout_native.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "csrc/torch/device_state.h"
#include "csrc/torch/generator.h"
#include "csrc/torch/tensor_location.h"

namespace ocl::aten {

namespace {

/// Returns the index of the first ocl device among the arguments; the current device if there is none.
int device_in(const torch::jit::Stack& stack, size_t arguments) {
  for (size_t i = stack.size() - arguments; i < stack.size(); ++i) {
    const c10::IValue& value = stack[i];
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().device().type() == c10::kPrivateUse1)
      return value.toTensor().device().index();
    if (value.isTensorList())
      for (const at::Tensor& t : value.toTensorVector())
        if (t.defined() && t.device().type() == c10::kPrivateUse1) return t.device().index();
  }
  return current_device();
}

/// Returns the number of Philox counters that an op may need: at most one per element of its largest tensor.
uint64_t counters_for(const torch::jit::Stack& stack, size_t arguments) {
  int64_t most = 1;
  for (size_t i = stack.size() - arguments; i < stack.size(); ++i)
    if (stack[i].isTensor() && stack[i].toTensor().defined()) most = std::max(most, stack[i].toTensor().numel());
  return static_cast<uint64_t>(most);
}

constexpr std::array<std::string_view, 4> kIntoExpanded = {"aten::masked_fill_", "aten::index_fill_", "aten::index_put_",
                                                           "aten::_index_put_impl_"};

}  // namespace

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (!op.hasTag(at::Tag::nondeterministic_seeded)) return at::native::cpu_fallback(op, stack);
  const auto& arguments = op.schema().arguments();
  const int device = device_in(*stack, arguments.size());
  const uint64_t counters = counters_for(*stack, arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].type()->isSubtypeOf(*c10::OptionalType::create(c10::GeneratorType::get()))) continue;
    c10::IValue& slot = (*stack)[stack->size() - arguments.size() + i];
    const std::optional<at::Generator> given = slot.isNone() ? std::nullopt : std::optional(slot.toGenerator());
    const auto [seed, first] = generator_for(given, device).reserve(counters);
    slot = cpu_generator(seed, first);
    return at::native::cpu_fallback(op, stack);
  }
  if (op.operator_name() == c10::OperatorName("aten::native_dropout", "")) {
    // This is PyTorch's only random op without a generator. The CPU version uses bernoulli_, which takes one.
    const auto input = torch::jit::peek(*stack, 0, 3).toTensor();
    const auto p = torch::jit::peek(*stack, 1, 3).toDouble();
    const auto train = torch::jit::peek(*stack, 2, 3).toOptional<bool>();
    torch::jit::drop(*stack, 3);
    auto [output, mask] = at::native::native_dropout_cpu(input, p, train);
    return torch::jit::push(*stack, std::move(output), std::move(mask));
  }
  at::native::cpu_fallback(op, stack);
}

bool writes_into_expanded(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (std::find(kIntoExpanded.begin(), kIntoExpanded.end(), op.schema().name()) == kIntoExpanded.end()) return false;
  const at::Tensor& target = stack[stack.size() - op.schema().arguments().size()].toTensor();
  return at::has_internal_overlap(target) == at::MemOverlap::Yes;
}

void write_into_expanded(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t first = stack->size() - op.schema().arguments().size();
  const at::Tensor target = (*stack)[first].toTensor();
  at::Tensor memory = target;  // The part of the expanded tensor that has each element once.
  for (int64_t d = 0; d < target.dim(); ++d)
    if (target.stride(d) == 0) memory = memory.narrow(d, 0, 1);
  const at::Tensor written = memory.cpu();
  (*stack)[first] = written.expand(target.sizes());
  for (size_t i = first + 1; i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (value.isTensor() && value.toTensor().defined()) {
      value = value.toTensor().cpu();
    } else if (value.isList() && op.schema().arguments()[i - first].name() == "indices") {
      c10::List<std::optional<at::Tensor>> indices = value.toOptionalTensorList().copy();
      for (size_t k = 0; k < indices.size(); ++k)
        if (const std::optional<at::Tensor> index = indices.get(k); index.has_value()) indices.set(k, index->cpu());
      value = indices;
    }
  }
  op.callBoxed(stack);
  torch::jit::drop(*stack, 1);
  memory.copy_(written);
  torch::jit::push(*stack, target);
}

}  // namespace ocl::aten
