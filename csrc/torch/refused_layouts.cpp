// csrc/torch/refused_layouts.cpp: refuses nested tensors with strided layout, which ocl does not have.
// Without these registrations torch would list its dispatch keys as an error, or end the process.
#include "csrc/torch/refused_layouts.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include "csrc/torch/errors.h"

namespace ocl::aten {

namespace {

void refuse_nested_op(const c10::OperatorHandle& op, torch::jit::Stack*) { refuse_nested(c10::toString(op.operator_name())); }

torch::CppFunction nested() { return torch::CppFunction::makeFromBoxedFunction<&refuse_nested_op>(); }

}  // namespace

void refuse_nested(const std::string& op) {
  at_boundary([&] {
    fail(ErrorKind::kUnsupported,
         op + ": ocl has no nested tensors with strided layout.\n"
              "  do:    use layout=torch.jagged, or pad the tensors (x.to_padded_tensor(0.0)) and pass a mask");
  });
  std::terminate();  // at_boundary has thrown.
}

TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) { m.fallback(nested()); }

// torch has a general kernel for these ops, which makes such a tensor, or fails with a misleading message.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* op : {"_nested_tensor_from_tensor_list", "_nested_tensor_from_mask", "_nested_from_padded",
                         "_nested_view_from_buffer", "_nested_view_from_buffer_copy"})
    m.impl(op, nested());
}

}  // namespace ocl::aten
