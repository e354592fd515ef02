// csrc/torch/number_ops.cpp: eager ops of a tensor and a Python integer. They become ops of two tensors, one of which is a
// number, as in PyTorch's own kernels. So one plan serves all integers (eager_key.h).
#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "csrc/torch/eager_op.h"

namespace ocl::aten {

namespace {

/// True if every integer type that the op may compute in has the number. PyTorch raises an error for other numbers.
bool fits(const at::Tensor& self, const at::Scalar& number) {
  if (!number.isIntegral(/*includeBool=*/false) || number.isSymbolic()) return false;
  if (!at::isIntegralType(self.scalar_type(), /*includeBool=*/false)) return true;
  return at::native::wrapped_scalar_tensor(number).to(self.scalar_type()).item<int64_t>() == number.to<int64_t>();
}

void with_number(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  c10::IValue& number = (*stack)[stack->size() - 1];
  if (!fits((*stack)[stack->size() - 2].toTensor(), number.toScalar())) return run_eager_op(op, stack);
  number = at::native::wrapped_scalar_tensor(number.toScalar());
  c10::Dispatcher::singleton().findSchemaOrThrow(op.schema().name().c_str(), "Tensor").callBoxed(stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : {"eq.Scalar", "ne.Scalar", "lt.Scalar", "le.Scalar", "gt.Scalar", "ge.Scalar", "remainder.Scalar",
                           "fmod.Scalar", "bitwise_and.Scalar", "bitwise_or.Scalar", "bitwise_xor.Scalar"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&with_number>());
}

}  // namespace ocl::aten
