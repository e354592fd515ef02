// csrc/torch/out_ops.cpp: eager out= overloads that nothing can trace, because PyTorch has no shapes for them, and those of ops
// with kernels of their own. They call the overload without out=, resize what was given and copy the results into it.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ocl::aten {

namespace {

using c10::OperatorHandle;

// Ops with kernels of their own (counted_ops.cpp, checked_ops.cpp), whose other overload reads sizes or errors back; and mode,
// whose out= overload accepts only devices that PyTorch knows.
constexpr std::array<std::string_view, 5> kOwn = {"aten::nonzero.out", "aten::masked_select.out", "aten::take.out",
                                                  "aten::cholesky.out", "aten::mode.values"};

/// The overload without out= of each op that `into_out` runs.
std::unordered_map<std::string, OperatorHandle>& functionals() {
  static auto* table = new std::unordered_map<std::string, OperatorHandle>;
  return *table;
}

size_t out_count(const c10::FunctionSchema& schema) {
  return std::count_if(schema.arguments().begin(), schema.arguments().end(), [](const c10::Argument& a) { return a.is_out(); });
}

/// True if `functional` takes the arguments of `out` before its out= arguments, and returns as many tensors as there are of
/// these.
bool is_functional_of(const c10::FunctionSchema& functional, const c10::FunctionSchema& out) {
  const size_t outs = out_count(out);
  if (out_count(functional) != 0 || functional.returns().size() != outs ||
      functional.arguments().size() + outs != out.arguments().size())
    return false;
  for (const c10::Argument& made : functional.returns())
    if (made.type()->kind() != c10::TypeKind::TensorType) return false;
  for (size_t i = 0; i < functional.arguments().size(); ++i)
    if (functional.arguments()[i].name() != out.arguments()[i].name() ||
        *functional.arguments()[i].type() != *out.arguments()[i].type())
      return false;
  return true;
}

void into_out(const OperatorHandle& op, torch::jit::Stack* stack) {
  const std::vector<c10::IValue> outs = torch::jit::pop(*stack, out_count(op.schema()));
  functionals().at(c10::toString(op.operator_name())).callBoxed(stack);
  const std::vector<c10::IValue> results = torch::jit::pop(*stack, outs.size());
  for (size_t i = 0; i < outs.size(); ++i) {
    const at::Tensor &out = outs[i].toTensor(), &result = results[i].toTensor();
    const at::ScalarType from = result.scalar_type(), to = out.scalar_type();
    TORCH_CHECK(at::can_cast(from, to) && at::isIntegralType(from, true) == at::isIntegralType(to, true), "result type ", from,
                " can't be cast to the desired output type ", to);
    if (at::native::resize_output(out, result.sizes())) out.as_strided_(result.sizes(), result.strides());
    out.copy_(result);
    stack->push_back(outs[i]);
  }
}

/// True if only devices have kernels for the op, so that there is nothing to trace.
bool has_no_shapes(const OperatorHandle& op) {
  for (const auto key : {c10::DispatchKey::Meta, c10::DispatchKey::CompositeExplicitAutograd,
                         c10::DispatchKey::CompositeImplicitAutograd, c10::DispatchKey::CompositeExplicitAutogradNonFunctional})
    if (op.hasKernelForDispatchKey(key)) return false;
  return true;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  const std::vector<c10::OperatorName> names = c10::Dispatcher::singleton().getAllOpNames();
  std::unordered_map<std::string, std::vector<OperatorHandle>> overloads;
  for (const c10::OperatorName& name : names)
    if (name.name.starts_with("aten::")) overloads[name.name].push_back(*c10::Dispatcher::singleton().findOp(name));
  for (const auto& [packet, ops] : overloads) {
    for (const OperatorHandle& op : ops) {
      const std::string name = c10::toString(op.operator_name());
      if (!op.hasSchema() || out_count(op.schema()) == 0) continue;
      if (std::find(kOwn.begin(), kOwn.end(), name) == kOwn.end() && !has_no_shapes(op)) continue;
      const auto other = std::find_if(ops.begin(), ops.end(), [&](const OperatorHandle& o) {
        return o.hasSchema() && is_functional_of(o.schema(), op.schema());
      });
      if (other == ops.end()) continue;
      functionals().emplace(name, *other);
      m.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&into_out>());
    }
  }
}

}  // namespace ocl::aten
