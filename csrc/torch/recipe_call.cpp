// csrc/torch/recipe_call.cpp: takes the inputs of a recipe's plan from the values of a call, and its results from those of the
// plan.
#include <type_traits>

#include "csrc/runtime/queues/queue.h"
#include "csrc/torch/device_state.h"
#include "csrc/torch/generator.h"
#include "csrc/torch/recipe.h"
#include "csrc/torch/tensor_location.h"

namespace ocl::aten {

namespace {

constexpr int64_t kMostPacked = 64;  // A tensor of at most this many numbers is uploaded with the call itself.

double number_of(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor().item<double>();
  return value.isDouble() ? value.toDouble() : static_cast<double>(value.toInt());
}

at::Tensor moved(const at::Tensor& tensor, int device) {
  if (device < 0) return tensor;
  return tensor.to(at::Device(at::kPrivateUse1, static_cast<c10::DeviceIndex>(device)), /*non_blocking=*/true);
}

at::Tensor packed(const Recipe& recipe, const Recipe::Source& source, const Leaves& leaves, const PlanInputs& inputs,
                  int device) {
  const at::Tensor numbers = at::empty({static_cast<int64_t>(source.leaves.size())}, at::device(at::kCPU).dtype(source.dtype));
  const auto leaf_value = [&](int leaf) { return number_of(leaves.at(leaf)); };
  const auto symbol_value = [&](ir::Symbol s) { return inputs.symbols.at(s.index); };
  const auto store = [&](auto* out) {
    for (const int leaf : source.leaves)
      *out++ = static_cast<std::remove_pointer_t<decltype(out)>>(
          leaf < 0 ? recipe.formulas.at(-1 - leaf).value(leaf_value, symbol_value) : leaf_value(leaf));
  };
  if (source.dtype == at::kFloat) {
    store(numbers.mutable_data_ptr<float>());
  } else if (source.dtype == at::kDouble) {
    store(numbers.mutable_data_ptr<double>());
  } else {
    for (size_t i = 0; i < source.leaves.size(); ++i) {
      const c10::IValue& value = leaves.at(source.leaves[i]);
      numbers[static_cast<int64_t>(i)].fill_(value.isTensor() ? value.toTensor().item() : at::Scalar(number_of(value)));
    }
  }
  // A short tensor is uploaded together with the call, see plan_runner.cpp.
  return numbers.numel() <= kMostPacked ? numbers : moved(numbers, device);
}

/// Returns real numbers, without conjugate and negative bits, that stand for the tensor in this form. They are the tensor's
/// memory if its bits are those of the form. A gradient that enters a backward graph may have other bits than were traced.
at::Tensor memory_of(at::Tensor tensor, const Recipe::Form& form = {}) {
  if (tensor.is_neg() != form.is_neg || tensor.is_conj() != form.is_conj) {
    // The plan relies on the strides, which resolve_conj() would not keep if there are gaps between the elements.
    const at::Tensor copy = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
    if (form.is_conj) tensor = tensor.conj();
    copy.copy_(form.is_neg ? tensor._neg_view() : tensor);
    return memory_of(copy);
  }
  if (tensor.is_neg()) tensor = tensor._neg_view();
  if (!tensor.is_complex()) return tensor;
  return at::view_as_real(tensor.is_conj() ? tensor.conj() : tensor);
}

/// Returns an output of the plan in its form. A result that is no view of an argument is no view for autograd either, because
/// autograd forbids writing to a view that a custom function made.
at::Tensor in_form(at::Tensor memory, const Recipe::Form& form) {
  if (form.is_complex && memory.is_view()) {
    memory = at::view_as_complex(memory);
  } else if (form.is_complex) {
    const at::ScalarType dtype = at::toComplexType(memory.scalar_type());
    at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(memory.storage()), memory.key_set(),
                                                               c10::scalarTypeToTypeMeta(dtype));
    std::vector<int64_t> sizes = memory.sizes().vec(), strides = memory.strides().vec();
    sizes.pop_back(), strides.pop_back();
    for (int64_t& stride : strides) stride /= 2;
    made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, memory.storage_offset() / 2);
    memory = made;
  }
  if (form.is_conj) memory = at::conj(memory);
  return form.is_neg ? memory._neg_view() : memory;
}

/// Returns (seed, offset) on the device, because it may also be a result of the call.
at::Tensor random_state(const Recipe::Source& source, const c10::IValue* generator, int device) {
  std::optional<at::Generator> given;
  if (generator != nullptr && generator->isGenerator()) given = generator->toGenerator();
  const auto [seed, offset] = generator_for(given, device).reserve(source.count);
  const uint64_t numbers[] = {seed, offset};
  const int64_t size = 2, stride = 1;
  const at::Tensor state = empty_strided_ocl(size, stride, at::kLong, device);
  const runtime::Location at = device_at(device).allocator().resolve(state.mutable_data_ptr());
  // A fill copies its pattern before it returns.
  current_queue(device).fill(at.mem, at.offset_bytes, sizeof numbers, numbers, sizeof numbers);
  return state;
}

}  // namespace

int64_t Recipe::Symbol::value(const Leaves& leaves) const {
  const c10::IValue& found = leaves.at(leaf);
  if (dim < 0) return found.toInt();
  return is_stride ? found.toTensor().stride(dim) : found.toTensor().size(dim);
}

PlanInputs inputs_of(const Recipe& recipe, const Leaves& leaves, int device) {
  using Kind = Recipe::Source::Kind;
  PlanInputs inputs;
  inputs.symbols.reserve(recipe.symbols.size());
  for (const Recipe::Symbol& symbol : recipe.symbols) inputs.symbols.push_back(symbol.value(leaves));
  inputs.tensors.reserve(recipe.sources.size());
  for (const Recipe::Source& source : recipe.sources) {
    switch (source.kind) {
      case Kind::kTensor:
        inputs.tensors.push_back(memory_of(leaves.at(source.index).toTensor(), source.form));
        break;
      case Kind::kMoved:
        inputs.tensors.push_back(memory_of(moved(leaves.at(source.index).toTensor(), device), source.form));
        break;
      case Kind::kConstant:
        inputs.tensors.push_back(memory_of(recipe.constants.at(source.index)));
        break;
      case Kind::kNumbers:
        inputs.tensors.push_back(packed(recipe, source, leaves, inputs, device));
        break;
      case Kind::kState:
        inputs.tensors.push_back(random_state(source, recipe.generator < 0 ? nullptr : &leaves.at(recipe.generator), device));
        break;
      case Kind::kFault:  // An interpreter raises errors itself.
        inputs.tensors.push_back(device < 0 ? at::zeros({1}, at::kInt) : recipe.fault_words.at(source.index));
        break;
    }
  }
  return inputs;
}

void bind_faults(Recipe& recipe, runtime::Device& device) {
  while (recipe.fault_words.size() < recipe.faults.size()) {
    void* word = device.fault_word(recipe.faults[recipe.fault_words.size()]);
    const at::Device where(at::kPrivateUse1, static_cast<c10::DeviceIndex>(device.index()));
    recipe.fault_words.push_back(
        at::from_blob(word, {1}, {1}, [](void*) {}, at::TensorOptions().dtype(at::kInt).device(where), where));
  }
}

void look_for_faults(const Recipe& recipe, const exec::Plan& plan) {
  if (recipe.faults.empty() || exec::launches_skipped()) return;
  runtime::Queue& queue = current_queue(plan.device->index());
  queue.expect_faults();
  if (plan.guard_bytes > 0) queue.finish();
}

c10::IValue value_of(const Recipe::Result& result, const Leaves& leaves, const PlanInputs& inputs,
                     const std::vector<at::Tensor>& outputs) {
  using Kind = Recipe::Result::Kind;
  switch (result.kind) {
    case Kind::kNone:
      return at::Tensor();
    case Kind::kOutput:
      return in_form(outputs.at(result.index), result.form);
    case Kind::kInput:
      return inputs.tensors.at(result.index);
    case Kind::kLeaf:
      return leaves.at(result.index);
    case Kind::kSize:
      return ir::evaluate(result.size, [&](ir::Symbol s) { return inputs.symbols.at(s.index); });
  }
  fail(ErrorKind::kInternal, "a recipe has a result of an unknown kind");
}

}  // namespace ocl::aten
