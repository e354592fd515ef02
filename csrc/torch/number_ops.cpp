// csrc/torch/number_ops.cpp: eager ops of a tensor and a Python integer. They become ops of tensors, one of which is a number,
// as in PyTorch's own kernels. So one plan serves all integers. Where tensors are floats, integers_to_floats (eager_key.h) does
// so.
#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/torch/eager_key.h"
#include "csrc/torch/eager_op.h"

namespace ocl::aten {

namespace {

/// The overload with tensors of each op that `with_number` runs.
std::unordered_map<const c10::FunctionSchema*, c10::OperatorHandle>& tensor_overloads() {
  static auto* table = new std::unordered_map<const c10::FunctionSchema*, c10::OperatorHandle>;
  return *table;
}

/// True if `overload` takes tensors where `op` takes numbers, and else the same arguments.
bool takes_tensors(const c10::FunctionSchema& overload, const c10::FunctionSchema& op) {
  const auto fits = [](const c10::Argument& a, const c10::Argument& b) {
    const std::string type = a.type()->str(), other = b.type()->str();
    return a.name() == b.name() &&
           (type == other || (type == "Scalar" && other == "Tensor") || (type == "Scalar?" && other == "Tensor?"));
  };
  return overload.overload_name() != op.overload_name() && overload.arguments().size() == op.arguments().size() &&
         std::equal(op.arguments().begin(), op.arguments().end(), overload.arguments().begin(), fits);
}

/// True if every integer type that the op may compute in has the number. PyTorch raises an error for other numbers.
bool fits(const at::Tensor& self, const at::Scalar& number) {
  if (!number.isIntegral(/*includeBool=*/false) || number.isSymbolic()) return false;
  if (!at::isIntegralType(self.scalar_type(), /*includeBool=*/false)) return true;
  return at::native::wrapped_scalar_tensor(number).to(self.scalar_type()).item<int64_t>() == number.to<int64_t>();
}

/// kIntegersOnly: other tensors keep the overload with numbers.
template <bool kIntegersOnly>
void with_number(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  c10::IValue* values = stack->data() + stack->size() - count;
  const at::Tensor self = std::find_if(values, values + count, [](const c10::IValue& v) { return v.isTensor(); })->toTensor();
  bool all_fit = !kIntegersOnly || at::isIntegralType(self.scalar_type(), /*includeBool=*/false);
  for (size_t i = 0; i < count; ++i) {
    if (!is_number(op.schema().arguments()[i]) || values[i].isNone()) continue;
    all_fit &= values[i].isScalar();  // Not integers of 2^63 and more.
    if (!values[i].isScalar()) continue;
    const at::Scalar number = values[i].toScalar();
    // A small power is a product, and PyTorch raises an error for a negative one.
    const bool is_small = op.schema().arguments()[i].name() == "exponent" && number.isIntegral(true) && number.toLong() <= 4;
    all_fit &= !is_small && fits(self, number);
  }
  if (!all_fit) return run_eager_op(op, stack);
  for (size_t i = 0; i < count; ++i)
    if (values[i].isScalar() && is_number(op.schema().arguments()[i]))
      values[i] = at::native::wrapped_scalar_tensor(values[i].toScalar());
  tensor_overloads().at(&op.schema()).callBoxed(stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  const std::vector<c10::OperatorName> names = c10::Dispatcher::singleton().getAllOpNames();
  const auto add = [&](const std::string& name, torch::CppFunction function) {
    const size_t dot = name.find('.');
    const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow(("aten::" + name.substr(0, dot)).c_str(), name.substr(dot + 1).c_str());
    for (const c10::OperatorName& other : names) {
      if (other.name != op.operator_name().name) continue;
      const auto overload = c10::Dispatcher::singleton().findOp(other);
      if (!overload->hasSchema() || !takes_tensors(overload->schema(), op.schema())) continue;
      tensor_overloads().emplace(&op.schema(), *overload);
      m.impl(name.c_str(), std::move(function));
      return;
    }
    TORCH_INTERNAL_ASSERT(false, name, " has no overload that takes tensors");
  };
  for (const char* name : {"eq.Scalar", "ne.Scalar", "lt.Scalar", "le.Scalar", "gt.Scalar", "ge.Scalar", "remainder.Scalar",
                           "fmod.Scalar", "bitwise_and.Scalar", "bitwise_or.Scalar", "bitwise_xor.Scalar"})
    add(name, torch::CppFunction::makeFromBoxedFunction<&with_number<false>>());
  for (const char* name :
       {"eq.Scalar_out",           "ne.Scalar_out",     "lt.Scalar_out",           "le.Scalar_out",      "gt.Scalar_out",
        "ge.Scalar_out",           "clamp.out",         "clamp_min.out",           "clamp_max.out",      "masked_fill_.Scalar",
        "pow.Tensor_Scalar_out",   "pow.Scalar_out",    "remainder.Scalar_Tensor", "bucketize.Scalar",   "searchsorted.Scalar",
        "searchsorted.Scalar_out", "__lshift__.Scalar", "__rshift__.Scalar",       "__ilshift__.Scalar", "__irshift__.Scalar"})
    add(name, torch::CppFunction::makeFromBoxedFunction<&with_number<true>>());
}

}  // namespace ocl::aten
