// csrc/torch/refused_layouts.cpp: refuses sparse tensors and nested tensors with strided layout, which ocl does not have.
// Without these registrations torch would list its dispatch keys as an error, or end the process.
#include "csrc/torch/refused_layouts.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include "csrc/torch/errors.h"

namespace ocl::aten {

namespace {

void refuse_sparse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  at_boundary([&] {
    fail(ErrorKind::kUnsupported,
         c10::toString(op.operator_name()) +
             ": ocl has no sparse tensors (COO, CSR, CSC, BSR, BSC).\n"
             "  do:    use a dense tensor (x.to_dense() on the CPU, nn.Embedding(sparse=False)), or keep the sparse tensor and "
             "the ops on it on the CPU");
  });
}

void refuse_nested_op(const c10::OperatorHandle& op, torch::jit::Stack*) { refuse_nested(c10::toString(op.operator_name())); }

torch::CppFunction sparse() { return torch::CppFunction::makeFromBoxedFunction<&refuse_sparse>(); }
torch::CppFunction nested() { return torch::CppFunction::makeFromBoxedFunction<&refuse_nested_op>(); }

/// True for ops that make a sparse tensor of dense tensors.
bool makes_sparse(const std::string& name) {
  const auto begins = [&](const char* text) { return name.rfind(text, 0) == 0; };
  const bool maker = begins("aten::sparse_") || begins("aten::_sparse_");
  const bool named = name.ends_with("_tensor") || name.ends_with("_tensor_unsafe") || name == "aten::sparse_mask";
  return (maker && named) || begins("aten::_to_sparse");
}

/// Refuses ops that make a sparse tensor of dense tensors. torch chooses their kernel by the device of the tensors, or by the
/// layout that is asked for.
void refuse_makers(torch::Library& m) {
  for (const c10::OperatorName& op : c10::Dispatcher::singleton().getAllOpNames())
    if (makes_sparse(op.name) && op.overload_name.find("out") == std::string::npos) m.impl(c10::toString(op).c_str(), sparse());
}

}  // namespace

void refuse_nested(const std::string& op) {
  at_boundary([&] {
    fail(ErrorKind::kUnsupported,
         op + ": ocl has no nested tensors with strided layout.\n"
              "  do:    use layout=torch.jagged, or pad the tensors (x.to_padded_tensor(0.0)) and pass a mask");
  });
  std::terminate();  // at_boundary has thrown.
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) { m.fallback(sparse()); }
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) { m.fallback(sparse()); }
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) { m.fallback(nested()); }

// torch has a general kernel for these ops, which makes such a tensor, or fails with a misleading message.
TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  for (const char* op : {"zeros", "crow_indices", "col_indices", "ccol_indices", "row_indices", "values", "_to_copy", "clone"})
    m.impl(op, sparse());
  refuse_makers(m);
}
TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) { refuse_makers(m); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  refuse_makers(m);
  for (const char* op : {"_nested_tensor_from_tensor_list", "_nested_tensor_from_mask", "_nested_from_padded",
                         "_nested_view_from_buffer", "_nested_view_from_buffer_copy"})
    m.impl(op, nested());
}

}  // namespace ocl::aten
