// csrc/torch/checked_ops.cpp: eager ops that check values. They call other eager ops, which compute everything on the device.
// Only what decides about an error is read back.
#include <ATen/ATen.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <torch/library.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <string>

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

/// Checks that the range of the data is finite, and runs the op. The op's arguments begin with the data, the bins and the
/// range.
void histogram(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t first = stack->size() - op.schema().arguments().size();
  const at::Tensor x = (*stack)[first].toTensor();
  const bool one = op.schema().name() == "aten::histogram";
  if ((*stack)[first + 2].isNone() && x.numel() > 0 && at::isFloatingType(x.scalar_type()) && (one || x.dim() > 1)) {
    const auto [low, high] = at::aminmax(x.reshape({-1, one ? 1 : x.size(-1)}), 0);
    const at::Tensor range = at::stack({low, high}).to(at::kCPU, at::kDouble);
    for (int64_t d = 0; d < range.size(1); ++d) {
      const double least = range[0][d].item<double>(), most = range[1][d].item<double>();
      TORCH_CHECK(std::isfinite(least) && std::isfinite(most), "torch.histogramdd: dimension ", d, "'s range [", least, ", ",
                  most, "] is not finite");
    }
  }
  run_eager_op(op, stack);
}

/// The drivers gelss and gelsd give residuals if all matrices have full rank.
void lstsq(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t first = stack->size() - op.schema().arguments().size();
  const at::Tensor a = (*stack)[first].toTensor(), b = (*stack)[first + 1].toTensor();
  const auto rcond = (*stack)[first + 2].toOptional<double>();
  std::string driver = (*stack)[first + 3].toOptional<std::string>().value_or("");
  std::transform(driver.begin(), driver.end(), driver.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool finds_rank = driver == "gelss" || driver == "gelsd";
  const at::ScalarType real = c10::toRealValueType(a.scalar_type());
  const bool is_float = real == at::kFloat || real == at::kDouble;
  const bool is_vector = b.dim() == a.dim() - 1;
  const bool fits = is_float && a.scalar_type() == b.scalar_type() && a.dim() > 1 && (is_vector || b.dim() == a.dim()) &&
                    a.size(-2) == b.size(is_vector ? -1 : -2);
  if (!finds_rank || !fits || a.size(-2) <= a.size(-1) || a.numel() == 0 || b.numel() == 0) return run_eager_op(op, stack);
  const at::Tensor sides = is_vector ? b.unsqueeze(-1) : b;
  const double epsilon =
      real == at::kDouble ? std::numeric_limits<double>::epsilon() : static_cast<double>(std::numeric_limits<float>::epsilon());
  const auto [left, values, right] = at::linalg_svd(a, /*full_matrices=*/false);
  const at::Tensor counts = values > values.narrow(-1, 0, 1) * rcond.value_or(epsilon * static_cast<double>(a.size(-2)));
  const at::Tensor inverse = at::where(counts, values.reciprocal(), 0).to(a.scalar_type());
  const at::Tensor x = at::matmul(right.mH(), inverse.unsqueeze(-1) * at::matmul(left.mH(), sides));
  const bool all_full = counts.all().item<bool>();
  const at::Tensor residuals = all_full ? (at::matmul(a, x) - sides).abs().square().sum(-2) : at::empty({0}, values.options());
  torch::jit::drop(*stack, op.schema().arguments().size());
  torch::jit::push(*stack, is_vector ? x.squeeze(-1) : x.mT().contiguous().mT(), residuals, counts.sum(-1), values);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("cholesky", cholesky);
  for (const char* name : {"histogram.bin_ct", "_histogramdd_bin_edges"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&histogram>());
  m.impl("linalg_lstsq", torch::CppFunction::makeFromBoxedFunction<&lstsq>());
  m.impl("segment_reduce", torch::CppFunction::makeFromBoxedFunction<&segment_reduce>());
}

}  // namespace ocl::aten
