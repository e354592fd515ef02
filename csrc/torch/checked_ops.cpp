// csrc/torch/checked_ops.cpp: eager ops that check values. They call other eager ops, which compute everything on the device.
// Only what decides about an error is read back.
#include <ATen/ATen.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include "csrc/torch/eager_op.h"

namespace ocl::aten {

namespace {

at::Tensor cholesky(const at::Tensor& self, bool upper) {
  at::native::squareCheckInputs(self, "cholesky");
  if (self.numel() == 0) return at::empty_like(self, at::MemoryFormat::Contiguous);
  const auto [factor, info] = at::linalg_cholesky_ex(self, upper);
  at::_linalg_check_errors(info, "cholesky", self.dim() == 2);
  return factor;
}

at::Tensor& cholesky_out(const at::Tensor& self, bool upper, at::Tensor& out) {
  TORCH_CHECK(at::can_cast(self.scalar_type(), out.scalar_type()), "Expected out tensor to have dtype ", self.dtype(),
              ", but got ", out.dtype(), " instead");
  at::native::resize_output(out, self.sizes());
  return out.copy_(at::cholesky(self, upper));
}

/// Checks the lengths of the segments, unless the caller vouches for them, and runs the op.
void segment_reduce(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t first = stack->size() - op.schema().arguments().size();
  const auto argument = [&](size_t i) -> const c10::IValue& { return (*stack)[first + i]; };
  constexpr size_t kLengths = 2, kIndices = 3, kOffsets = 4, kAxis = 5, kUnsafe = 6;
  const at::Tensor data = argument(0).toTensor();
  const auto given = [&](size_t i) { return argument(i).isTensor() && argument(i).toTensor().defined(); };
  const int64_t axis = at::maybe_wrap_dim(argument(kAxis).toInt(), data.dim());
  if (given(kLengths) && !given(kIndices) && !given(kOffsets) && !argument(kUnsafe).toBool()) {
    const at::Tensor lengths = argument(kLengths).toTensor();
    if (data.dim() >= lengths.dim() && axis == lengths.dim() - 1 && lengths.numel() > 0) {
      TORCH_CHECK(!lengths.lt(0).any().item<bool>(), "lengths contains negative value!");
      TORCH_CHECK(
          lengths.sum({-1}).eq(data.size(axis)).all().item<bool>(),
          "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe.");
    }
  }
  run_eager_op(op, stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("cholesky", cholesky);
  m.impl("cholesky.out", cholesky_out);
  m.impl("segment_reduce", torch::CppFunction::makeFromBoxedFunction<&segment_reduce>());
}

}  // namespace ocl::aten
