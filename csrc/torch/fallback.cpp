// csrc/torch/fallback.cpp: runs ops that have no native kernel. They are compiled (eager.h) if possible. Otherwise their
// operands are copied to the CPU, they run there, and their results are copied back. Each run on the CPU is counted, and each
// such op gets one warning. Random ops that run on the CPU draw from a CPU generator seeded by our generator's (seed, offset),
// so they are reproducible. Random ops of other libraries that take no generator draw from the CPU's default generator.
#include "csrc/torch/fallback.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/native_dropout_native.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <string_view>

#include "csrc/torch/device_state.h"
#include "csrc/torch/eager.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/generator.h"
#include "csrc/torch/list_rounds.h"
#include "csrc/torch/tensor_location.h"

namespace ocl::aten {

namespace {

std::mutex g_fallback_mutex;
std::map<std::string, int64_t> g_counts;
std::atomic<bool> g_warn{true};
std::atomic<bool> g_forbidden{false};

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

// Ops whose length arguments may be CPU tensors on every device. Indices on the CPU are moved before they get here, see
// counted_ops.cpp.
constexpr std::array<std::string_view, 1> kMixedDevices = {"aten::_ctc_loss"};

/// Throws ConfigError if arguments are on different devices. A CPU tensor without dimensions counts as a number.
void check_devices(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto& arguments = op.schema().arguments();
  if (std::find(kMixedDevices.begin(), kMixedDevices.end(), op.schema().name()) != kMixedDevices.end()) return;
  std::optional<at::Device> seen;
  const auto check = [&](const at::Tensor& t) {
    if (!t.defined() || (t.device().is_cpu() && t.dim() == 0)) return;
    if (!seen.has_value()) seen = t.device();
    if (t.device() == *seen) return;
    const at::Device &a = *seen, b = t.device();
    fail(ErrorKind::kConfig, c10::toString(op.operator_name()) + ": expected all tensors on one device, got " + a.str() +
                                 " and " + b.str() + ".\n  do: move one, for example x.to('" + (a.is_cpu() ? b : a).str() +
                                 "')");
  };
  for (size_t i = stack.size() - arguments.size(); i < stack.size(); ++i) {
    if (stack[i].isTensor()) {
      check(stack[i].toTensor());
    } else if (stack[i].isTensorList()) {
      for (const at::Tensor& t : stack[i].toTensorVector()) check(t);
    }
  }
}

/// Returns the number of Philox counters that an op may need: at most one per element of its largest tensor.
uint64_t counters_for(const torch::jit::Stack& stack, size_t arguments) {
  int64_t most = 1;
  for (size_t i = stack.size() - arguments; i < stack.size(); ++i)
    if (stack[i].isTensor() && stack[i].toTensor().defined()) most = std::max(most, stack[i].toTensor().numel());
  return static_cast<uint64_t>(most);
}

/// Returns dtype and sizes of a tensor, such as "float32[2, 3]".
std::string describe(const at::Tensor& t) {
  std::string text = std::string(c10::getDtypeNames(t.scalar_type()).first) + "[";
  for (int64_t d = 0; d < t.dim(); ++d) text += (d ? ", " : "") + std::to_string(t.size(d));
  return text + "]";
}

/// Returns the tensors among the arguments as a text, such as "float32[2, 3], float32[3]".
std::string describe_tensors(const torch::jit::Stack& stack, size_t arguments) {
  std::string text;
  const auto add = [&](const at::Tensor& t) {
    if (t.defined()) text.append(text.empty() ? "" : ", ").append(describe(t));
  };
  for (size_t i = stack.size() - arguments; i < stack.size(); ++i) {
    if (stack[i].isTensor()) {
      add(stack[i].toTensor());
    } else if (stack[i].isTensorList()) {
      for (const at::Tensor& t : stack[i].toTensorVector()) add(t);
    }
  }
  return text;
}

/// Throws FallbackError.
[[noreturn]] void forbid(const std::string& op, const std::string& tensors,
                         const std::string& why = "torch_ocl_compile.eager.reasons() says what was missing",
                         const std::string& remedy = "use other ops, or call it in a function compiled with backend='ocl'") {
  const std::string message = op + " on (" + tensors +
                              ") would run on the CPU, which the option fallback=error (TORCH_OCL_FALLBACK) forbids.\n" +
                              "  why:   " + why + "\n" + "  do:    leave the option out, " + remedy;
  const pybind11::gil_scoped_acquire gil;
  const pybind11::object cls = pybind11::module_::import("torch_ocl_compile.errors").attr("FallbackError");
  PyErr_SetString(cls.ptr(), message.c_str());
  python_error raised;
  raised.persist();
  throw raised;
}

/// Runs the op on the CPU. Replaces the arguments on the stack by the results.
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

// PyTorch lets these ops write to an expanded tensor, and warns that it may stop doing so.
constexpr std::array<std::string_view, 4> kIntoExpanded = {"aten::masked_fill_", "aten::index_fill_", "aten::index_put_",
                                                           "aten::_index_put_impl_"};

/// If the call is one of these ops on an expanded tensor, runs it on the CPU, because the result depends on the order of its
/// writes. Returns false for other calls.
bool wrote_into_expanded(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (std::find(kIntoExpanded.begin(), kIntoExpanded.end(), op.schema().name()) == kIntoExpanded.end()) return false;
  const size_t first = stack->size() - op.schema().arguments().size();
  const at::Tensor target = (*stack)[first].toTensor();
  if (at::has_internal_overlap(target) != at::MemOverlap::Yes) return false;
  const std::string name = c10::toString(op.operator_name());
  if (g_forbidden) forbid(name, describe_tensors(*stack, op.schema().arguments().size()));
  count_fallback(name);
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
  return true;
}

}  // namespace

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at_boundary([&] { check_devices(op, *stack); });
  if (wrote_into_expanded(op, stack)) return;
  const Outcome outcome = run_compiled(op, stack);
  if (outcome == Outcome::kRan || (outcome == Outcome::kNone && run_overlapping_lists(op, stack))) return;
  const std::string name = c10::toString(op.operator_name());
  const bool forbidden = g_forbidden && outcome != Outcome::kTracing;
  const std::string tensors = forbidden ? describe_tensors(*stack, op.schema().arguments().size()) : "";
  if (forbidden && outcome == Outcome::kNone) forbid(name, tensors);
  if (!forbidden && outcome != Outcome::kRefused) count_fallback(name);
  run_on_cpu(op, stack);
  // If PyTorch refuses the arguments, run_on_cpu has thrown PyTorch's error before this line.
  if (forbidden) forbid(name, tensors);
  if (outcome == Outcome::kRefused) count_fallback(name);
}

void count_host_copy(const std::string& op, const at::Tensor& src) {
  if (g_forbidden)
    forbid(op, describe(src), "no kernel does this copy, so it goes through the host",
           "or convert the tensor on the CPU, before it is moved to the device");
  count_fallback(op);
}

void count_fallback(const std::string& op) {
  bool first = false;
  {
    const std::lock_guard lock(g_fallback_mutex);
    first = ++g_counts[op] == 1;
  }
  if (first && g_warn)
    TORCH_WARN(op,
               " cannot be compiled for ocl on its own and runs on the CPU, with copies both ways (said once per op; "
               "torch.ocl.fallback_counts() counts them; TORCH_OCL_WARN_FALLBACK=0 silences this). "
               "Most ops are compiled where a function compiled with backend='ocl' contains them.");
}

std::map<std::string, int64_t> fallback_counts() {
  const std::lock_guard lock(g_fallback_mutex);
  return g_counts;
}

void reset_fallback_counts() {
  const std::lock_guard lock(g_fallback_mutex);
  g_counts.clear();
}

void set_fallback_warnings(bool on) { g_warn = on; }

void set_fallback_forbidden(bool on) { g_forbidden = on; }

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

/// Registers ops that torch would decompose if the device had no kernels for them, although one plan can compute each. These
/// are ops on lists of tensors, norms, and gradients that the decomposition would round after each step. ldexp is among them
/// because torch 2.11, for integer exponents, looks for kernels only among its own, and conj_physical_ because every version
/// does.
/// cat is among them because torch would call cat.out with a new tensor, and a plan for all sizes cannot know that this
/// tensor has the size of the result.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  constexpr std::array<std::string_view, 10> kWhole = {"aten::native_layer_norm",
                                                       "aten::native_group_norm",
                                                       "aten::embedding",
                                                       "aten::mish_backward",
                                                       "aten::silu_backward",
                                                       "aten::native_channel_shuffle",
                                                       "aten::ldexp",
                                                       "aten::ldexp_",
                                                       "aten::conj_physical_",
                                                       "aten::cat"};
  for (const c10::OperatorName& op : c10::Dispatcher::singleton().getAllOpNames()) {
    const bool whole =
        op.name.rfind("aten::_foreach_", 0) == 0 || std::find(kWhole.begin(), kWhole.end(), op.name) != kWhole.end();
    const bool is_out = op.overload_name == "out" || op.overload_name.find("_out") != std::string::npos;
    if (!whole || (is_out && op.name != "aten::ldexp")) continue;
    m.impl(c10::toString(op).c_str(), torch::CppFunction::makeFromBoxedFunction<&fallback>());
  }
}

}  // namespace ocl::aten
