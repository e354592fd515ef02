// csrc/torch/eager_op.cpp: where every op without a native kernel starts. It is compiled (eager.h) if possible. Otherwise it
// runs on the CPU (cpu_run.h), which is counted (refusals.h).
#include "csrc/torch/eager_op.h"

#include <torch/library.h>

#include <string_view>

#include "csrc/support/words.h"
#include "csrc/torch/cpu_run.h"
#include "csrc/torch/eager.h"
#include "csrc/torch/errors.h"
#include "csrc/torch/list_rounds.h"
#include "csrc/torch/refusals.h"

namespace ocl::aten {

namespace {

/// Throws ConfigError if arguments are on different devices. A CPU tensor without dimensions counts as a number.
void check_devices(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto& arguments = op.schema().arguments();
  // Its lengths may be CPU tensors on every device. Indices on the CPU are moved before they get here, see counted_ops.cpp.
  if (op.schema().name() == "aten::_ctc_loss") return;
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
      for (const c10::IValue& element : stack[i].toListRef()) check(element.toTensor());
    }
  }
}

}  // namespace

void run_eager_op(const c10::OperatorHandle& op, torch::jit::Stack* stack, c10::function_ref<void()> on_cpu) {
  at_boundary([&] { check_devices(op, *stack); });
  const bool expanded = writes_into_expanded(op, *stack);
  const auto [outcome, reason] =
      expanded ? Attempt{Outcome::kNone, "its result depends on the order of its writes"} : run_compiled(op, stack);
  if (outcome == Outcome::kRan || (outcome == Outcome::kNone && !expanded && run_overlapping_lists(op, stack))) return;
  // A compilation runs an op without a rule for fake tensors once, to see what it returns. That is no fallback: the compiler
  // gives its own reason.
  if (outcome == Outcome::kTracing) return on_cpu();
  const Refused refused{c10::toString(op.operator_name()), reason};
  const bool forbidden = fallback_is_forbidden();
  const std::string tensors = forbidden ? describe_tensors(op, *stack) : "";
  if (forbidden && outcome == Outcome::kNone) forbid(refused, tensors);
  if (expanded)
    write_into_expanded(op, stack);
  else
    on_cpu();
  // If the arguments are bad, PyTorch's own error has been thrown before this line.
  if (forbidden) forbid(refused, tensors);
  count(refused);
}

void run_eager_op(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  run_eager_op(op, stack, [&] { run_on_cpu(op, stack); });
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_eager_op>()); }

/// Registers ops that torch would decompose if the device had no kernels for them, although one plan can compute each. These
/// are ops on lists of tensors, norms, and gradients that the decomposition would round after each step. ldexp is among them
/// because torch 2.11, for integer exponents, looks for kernels only among its own, and conj_physical_ because every version
/// does.
/// linalg_pinv is among them because it needs no singular vectors, for which torch would ask.
/// cat and those after it are among them because torch would call their out= overload with a tensor without elements. A plan
/// for all sizes cannot resize it, so that each size would be compiled.
/// The last five run on the CPU: torch's own kernels, which it has for all devices, read the memory of the tensors on the host.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  constexpr std::string_view kWhole =
      "native_layer_norm native_group_norm embedding mish_backward silu_backward native_channel_shuffle ldexp ldexp_ "
      "conj_physical_ cat abs median nanmedian kthvalue logical_and logical_or logical_xor logical_not logsumexp "
      "soft_margin_loss _rowwise_prune _sobol_engine_draw _sobol_engine_ff_ _sobol_engine_scramble_ "
      "_sobol_engine_initialize_state_";
  for (const c10::OperatorName& op : c10::Dispatcher::singleton().getAllOpNames()) {
    const std::string name = c10::toString(op);
    const bool whole = op.name.rfind("aten::_foreach_", 0) == 0 || name == "aten::linalg_pinv.atol_rtol_tensor" ||
                       (op.name.starts_with("aten::") && has_word(kWhole, std::string_view(op.name).substr(6)));
    const bool is_out = op.overload_name == "out" || op.overload_name.find("_out") != std::string::npos;
    if (!whole || (is_out && op.name != "aten::ldexp")) continue;
    m.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_eager_op>());
  }
}

}  // namespace ocl::aten
